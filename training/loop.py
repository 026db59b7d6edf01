"""The training loop."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training import checkpoint
from training.augment import Augmentation, check_suits
from training.average import WeightAverage
from training.epochs import Epoch, OnEpoch, OnStep, Outcome, Step, epoch_from
from training.errors import ConfigurationError, DivergedError
from training.evaluate import Evaluation, evaluate
from training.export import logits_of
from training.feed import feed
from training.learned_epoch import LearnedEpochs
from training.losses import Criterion
from training.mixup import Mixing
from training.models.pretrained import FineTuned
from training.optimiser import make_optimiser
from training.recipe import Recipe
from training.stored import Stored
from training.team import ALONE, Team

SAVED_EVERY_S = 300.0
"""Seconds between two checkpoints within an epoch."""
_LOG = logging.getLogger(__name__)
_AUGMENTATION, _MIXTURE, _NETWORK = range(3)  # streams of chance beside the order of the rows


@dataclass(frozen=True)
class Rows:
    """Stored examples and their labels.

    Attributes:
        inputs: (N, …), in the form that a bundle's graph takes; images may stay in files.
        labels: int64 (N,).
        weights: Weight of each row in the loss, (N,); None where all are equal.
        chances: Chance of each row to be drawn, (N,), with sum 1; None to take each once per epoch.
    """

    inputs: NDArray[Any] | Stored
    labels: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None
    chances: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def digest(self) -> str:
        """Return the first 16 hexadecimal digits of a SHA-256 over inputs and labels."""
        whole = hashlib.sha256()
        inputs = None if isinstance(self.inputs, Stored) else self.inputs
        if isinstance(self.inputs, Stored):
            whole.update(self.inputs.digest().encode())
        for array in (inputs, self.labels, self.weights, self.chances):
            if array is None:
                continue
            whole.update(f"{array.dtype}{array.shape}".encode())
            whole.update(np.ascontiguousarray(array).data)
        return whole.hexdigest()[:16]


def train(
    module: nn.Module,
    criterion: Criterion,
    rows: Rows,
    recipe: Recipe,
    *,
    validation: Rows | None = None,
    keep: Path | None = None,
    on_epoch: OnEpoch | None = None,
    on_step: OnStep | None = None,
    team: Team = ALONE,
) -> Outcome:
    """Minimise the mean loss.

    Args:
        module: From stored inputs to logits; with mixup, preprocessing followed by the network. Trained in place, and
            left on the CPU in evaluation mode.
        criterion: From logits (n, K), labels (n,) and row numbers (n,) to losses (n,).
        rows: The training rows.
        recipe: The settings.
        validation: Rows to evaluate on after each epoch; required for early stopping.
        keep: Checkpoint file, written after each epoch, and by a single process also every `SAVED_EVERY_S` seconds
            within it. If it exists, the run continues from it, to the same result. The caller removes it once the
            result is written, so that a full disk costs no training.
        on_epoch: Called after every epoch, in the first process of the team; not again for epochs of the checkpoint. It
            is called twice for an epoch if the process was killed before the checkpoint was written.
        on_step: Called after every step, in the first process.
        team: The processes that train together.

    Raises:
        ConfigurationError: The recipe does not suit the rows, or the checkpoint belongs to another run.
        DivergedError: The loss of a step, or the weights or validation logits after an epoch, are not finite.
    """
    if recipe.patience is not None and validation is None:
        raise ConfigurationError(f"patience is {recipe.patience}, which requires validation rows")
    if recipe.frozen_epochs and (team.size > 1 or not any(isinstance(each, FineTuned) for each in module.modules())):
        raise ConfigurationError(
            f"frozen_epochs is {recipe.frozen_epochs}, which requires a network of timm:, torchvision: or hf: and "
            "a single process"
        )
    check_suits(recipe, rows.inputs.shape)
    if min(recipe.batch_size, len(rows)) < team.size:
        raise ConfigurationError(
            f"batches of {recipe.batch_size} and {len(rows)} rows in total, expected at least one row for each of "
            f"{team.size} processes"
        )
    if min(recipe.batch_size, len(rows)) < 2 * team.size:
        _check_single_row(module, rows)
    asked = {} if keep is None else _identity(module, criterion, rows, recipe, validation)
    run = _Run(module, criterion, rows, recipe, validation, team)
    if keep is not None and (state := checkpoint.read(keep, asked)) is not None:
        run.restore(state)

    def save() -> None:
        if keep is not None:
            checkpoint.write(keep, asked, run.state())

    while not run.finished:
        epoch = run.epoch(save if team.size == 1 else None, on_step if team.leads else None)
        if team.leads:
            try:
                if on_epoch is not None:
                    on_epoch(epoch)  # before the checkpoint: what ends the process between them loses no line of a log
            finally:
                save()
    return run.finish()


@dataclass
class _Pass:
    """An epoch under way.

    Attributes:
        order: The rows in their order.
        means: Mean loss of each step, on the device.
        totals: Sums of losses and right answers so far, on the device.
        mixture: Source of randomness of mixtures.
        step: Steps taken.
        seconds: Time that they took.
    """

    order: Tensor
    means: Tensor
    totals: Tensor
    mixture: np.random.Generator
    step: int = 0
    seconds: float = 0.0


class _Run:
    """The state of a run between two steps."""

    def __init__(
        self, module: nn.Module, criterion: Criterion, rows: Rows, recipe: Recipe, validation: Rows | None, team: Team
    ) -> None:
        self._device = device_of(recipe)
        if recipe.precision == "bfloat16" and self._device.type == "cpu" and team.leads and _emulates_bfloat16():
            _LOG.warning("This processor lacks AVX-512, which bfloat16 needs: float32 is several times faster here.")
        self._module = module.to(self._device)
        if recipe.channels_last:
            # Weights of convolutions over images alone have four axes.
            for parameter in module.parameters():
                if parameter.ndim == 4:
                    parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
        network = module
        self._mixes = recipe.mixup > 0 or recipe.cutmix > 0
        if self._mixes:
            preprocessing, inner = module.children()
            classes = logits_of(module.eval(), rows.inputs[:1]).shape[1]
            network = Mixing(preprocessing, inner, classes, recipe)
        if recipe.compile:
            # Where rows are mixed, preprocessing and network are called one by one.
            for part in module.children() if self._mixes else (module,):
                part.compile()
        self._network = team.wrap(network)
        self._criterion = criterion.to(self._device)
        self._learned = LearnedEpochs(len(rows)).to(self._device)
        self._feed = feed(rows.inputs, self._device)
        self._labels = torch.from_numpy(rows.labels).to(self._device)
        self._weights = None if rows.weights is None else torch.from_numpy(rows.weights).float().to(self._device)
        self._chances = None if rows.chances is None else torch.from_numpy(rows.chances).cumsum(0)
        self._rows = rows
        self._recipe, self._validation, self._team = recipe, validation, team
        self._optimiser = make_optimiser(module, recipe)
        self._average = WeightAverage(module, recipe.average) if recipe.average else None
        self._order = torch.Generator().manual_seed(recipe.seed)
        self._chance = torch.Generator()
        self._augment = Augmentation(recipe, self._chance)
        self._epochs: list[Epoch] = []
        self._pass: _Pass | None = None
        self._best: dict[str, Tensor] | None = None
        self._best_number = 0

    @property
    def _kept(self) -> nn.Module:
        """The network that is evaluated and kept: the trained one, or its average."""
        return self._module if self._average is None else self._average.module

    @property
    def finished(self) -> bool:
        done, patience = len(self._epochs), self._recipe.patience
        return done == self._recipe.epochs or (patience is not None and done - self._best_number >= patience)

    def epoch(self, save: Callable[[], None] | None = None, on_step: OnStep | None = None) -> Epoch:
        """Do what is left of an epoch; `save` is called between its steps from time to time, `on_step` after each."""
        recipe, number = self._recipe, len(self._epochs) + 1
        under_way = self._pass = self._pass or self._new_pass(number)
        batches = _batches(under_way.order, recipe.batch_size, self._team.size)
        saved = began_here = time.monotonic()
        first = under_way.step
        self._module.train()
        if recipe.frozen_epochs:
            self._freeze(frozen=number <= recipe.frozen_epochs)
        parts = (part for batch in batches[under_way.step :] for part in self._parts(batch))
        with (
            self._team.merging([*self._criterion.buffers(), *self._learned.buffers()]),
            closing(self._feed(parts)) as inputs,
        ):
            for step in range(under_way.step, len(batches)):
                began = time.perf_counter()
                step_size = recipe.step_size(number - 1 + step / len(batches))
                for group in self._optimiser.param_groups:
                    group["lr"] = step_size * group.get("scale", 1.0)
                under_way.means[step] = self._step(number, batches[step], inputs, under_way)
                # Reading a number from a GPU waits for it.
                if self._device.type == "cpu" or step + 1 == len(batches):
                    self._check(under_way.means[: step + 1], number, step_size)
                under_way.seconds += time.perf_counter() - began
                under_way.step = step + 1
                if on_step is not None:
                    rows = (step + 1 - first) * recipe.batch_size / (time.monotonic() - began_here)
                    on_step(Step(number, recipe.epochs, step + 1, len(batches), rows))
                if save is not None and time.monotonic() - saved >= SAVED_EVERY_S and step + 1 < len(batches):
                    save()
                    saved = time.monotonic()
            loss, right = (self._team.total(under_way.totals) / len(self._labels)).tolist()
        self._check_weights(number, step_size)
        evaluation = self._team.from_leader(self._evaluate)
        epoch = Epoch(number, recipe.epochs, loss, right, under_way.seconds, step_size, evaluation)
        self._pass = None
        self._epochs.append(epoch)
        self._remember_best(epoch)
        return epoch

    def _new_pass(self, number: int) -> _Pass:
        order = self._shuffled(self._drawn(len(self._labels)))
        self._chance.manual_seed(self._seed(_AUGMENTATION, number))
        if self._team.size > 1:
            torch.manual_seed(self._seed(_NETWORK, number))  # of dropout; one process alone goes on where it was
        steps = len(_batches(order, self._recipe.batch_size, self._team.size))
        return _Pass(
            order=order,
            means=torch.zeros(steps, device=self._device),
            totals=torch.zeros(2, dtype=torch.float64, device=self._device),
            mixture=np.random.default_rng(self._seed(_MIXTURE, number)),
        )

    def _freeze(self, *, frozen: bool) -> None:
        for network in self._module.modules():
            if isinstance(network, FineTuned):
                network.freeze(frozen=frozen)

    def _drawn(self, count: int) -> Tensor:
        """Return the rows of an epoch in order: each once, or as many drawn by their chances."""
        if self._chances is None:
            return torch.randperm(count, generator=self._order)
        places = torch.rand(count, dtype=torch.float64, generator=self._order) * self._chances[-1]
        return torch.searchsorted(self._chances, places, right=True).clamp_max(count - 1)

    def _shuffled(self, order: Tensor) -> Tensor:
        """Return these rows in an order that suits their files; in the given one if none does better."""
        if not isinstance(self._rows.inputs, Stored) or self._rows.inputs.records.pieces is None:
            return order
        seed = int(torch.randint(2**62, (), generator=self._order))
        return torch.from_numpy(self._rows.inputs.shuffled(order.numpy(), np.random.default_rng(seed)))

    def _seed(self, stream: int, epoch: int) -> int:
        """Return a seed for each stream, epoch and process."""
        mixed = np.random.SeedSequence([self._recipe.seed, stream, epoch, self._team.rank])
        return int(mixed.generate_state(1, np.uint64)[0] >> np.uint64(1))

    def _parts(self, batch: Tensor) -> Sequence[Tensor]:
        """Return this process's rows of a batch, in the parts that are worked one after another."""
        rows = self._team.share(batch)
        # Batch normalisation cannot measure a single row.
        return rows.tensor_split(min(self._recipe.accumulation, max(len(rows) // 2, 1)))

    def _step(self, number: int, batch: Tensor, inputs: Iterator[Tensor], under_way: _Pass) -> Tensor:
        """Take one step on the rows of a batch, whose inputs come part by part, and return its mean loss."""
        parts = self._parts(batch)
        mean = torch.zeros((), device=self._device)
        self._optimiser.zero_grad()
        for place, part in enumerate(parts, start=1):
            with self._team.alone(self._network) if place < len(parts) else nullcontext():
                mean += self._add_gradient(number, part.to(self._device), next(inputs), len(batch), under_way)
        if self._recipe.clip is not None:
            nn.utils.clip_grad_norm_(self._module.parameters(), self._recipe.clip)
        self._optimiser.step()
        if self._average is not None:
            self._average.update(self._module)
        return mean

    def _add_gradient(self, number: int, rows: Tensor, stored: Tensor, whole: int, under_way: _Pass) -> Tensor:
        """Add what some rows contribute to the gradient of a batch of `whole` rows; return their share of its loss."""
        inputs, labels = self._augment(stored), self._labels[rows]
        with self._precision():
            if self._mixes:
                logits, targets = self._network(inputs, labels, under_way.mixture)
            else:
                logits, targets = self._network(inputs), labels
        losses = self._criterion(logits, targets, rows)
        if self._weights is not None:
            losses = losses * self._weights[rows]
        # Gradients are averaged over the team: each process weighs its rows as if the batch were its own.
        share: Tensor = losses.sum() * self._team.size / whole
        torch.autograd.backward(share)
        top = logits.detach().argmax(dim=1)
        self._learned.record(number, rows, top == labels)
        right = top == (targets.argmax(dim=1) if self._mixes else labels)
        under_way.totals += torch.stack([losses.detach().sum(), right.sum()])
        return share.detach()

    def _check(self, means: Tensor, number: int, step_size: float) -> None:
        finite = torch.isfinite(means)
        if finite.all():
            return
        step = int((~finite).int().argmax())
        raise _diverged(f"the loss became {means[step].item()} in epoch {number}, step {step + 1}", step_size)

    def _check_weights(self, number: int, step_size: float) -> None:
        """Check the weights, since the loss of a step does not show what that step did to them."""
        for name, tensor in self._module.state_dict().items():
            if not tensor.isfinite().all():
                raise _diverged(f"{name} is no longer finite after epoch {number}", step_size)

    def _precision(self) -> AbstractContextManager[object]:
        if self._recipe.precision == "float32":
            return nullcontext()
        return torch.autocast(self._device.type, torch.bfloat16)

    def _evaluate(self) -> Evaluation | None:
        if self._validation is None:
            return None
        logits = logits_of(self._kept.eval(), self._validation.inputs)
        if not np.isfinite(logits).all():
            number = len(self._epochs) + 1
            raise _diverged(
                f"the logits of validation rows are no longer finite after epoch {number}", self._recipe.learning_rate
            )
        return evaluate(logits, self._validation.labels)

    def _remember_best(self, epoch: Epoch) -> None:
        """Keep the weights of the lowest validation NLL if training may stop early, otherwise the newest."""
        if self._recipe.patience is None or epoch.validation is None:
            self._best_number = epoch.number
            return
        before = [seen.validation.nll for seen in self._epochs[:-1] if seen.validation is not None]
        if not before or epoch.validation.nll < min(before):
            self._best_number = epoch.number
            self._best = {name: tensor.detach().clone() for name, tensor in self._kept.state_dict().items()}

    def finish(self) -> Outcome:
        if self._best is not None:
            self._module.load_state_dict(self._best)
        elif self._average is not None:
            self._module.load_state_dict(self._average.module.state_dict())
        self._module.cpu().eval()
        return Outcome(self._epochs, self._best_number, self._learned.epochs().cpu().numpy())

    def state(self) -> dict[str, Any]:
        return {
            "module": self._module.state_dict(),
            "criterion": self._criterion.state_dict(),
            "learned": self._learned.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "average": None if self._average is None else self._average.state(),
            "best": self._best,
            "best_number": self._best_number,
            "epochs": [asdict(epoch) for epoch in self._epochs],
            "pass": None if self._pass is None else self._pass_state(self._pass),
            "order": self._order.get_state(),
            "chance": torch.get_rng_state(),
            "device_chance": torch.cuda.get_rng_state() if self._device.type == "cuda" else None,
        }

    def _pass_state(self, under_way: _Pass) -> dict[str, Any]:
        mixture = json.dumps(under_way.mixture.bit_generator.state)
        return vars(under_way) | {"mixture": mixture, "augmentation": self._chance.get_state()}

    def _restored_pass(self, state: dict[str, Any]) -> _Pass:
        self._chance.set_state(state.pop("augmentation"))
        mixture = np.random.default_rng()
        mixture.bit_generator.state = json.loads(state["mixture"])
        on_device = {name: state[name].to(self._device) for name in ("means", "totals")}
        return _Pass(**state | on_device | {"mixture": mixture})

    def restore(self, state: dict[str, Any]) -> None:
        self._module.load_state_dict(state["module"])
        self._criterion.load_state_dict(state["criterion"])
        self._learned.load_state_dict(state["learned"])
        self._optimiser.load_state_dict(state["optimiser"])
        if self._average is not None:
            self._average.restore(state["average"])
        self._best, self._best_number = state["best"], state["best_number"]
        self._epochs = [epoch_from(document) for document in state["epochs"]]
        self._pass = None if state["pass"] is None else self._restored_pass(state["pass"])
        self._order.set_state(state["order"])
        torch.set_rng_state(state["chance"])
        if state["device_chance"] is not None:
            torch.cuda.set_rng_state(state["device_chance"])


def _diverged(what: str, step_size: float) -> DivergedError:
    return DivergedError(
        f"{what}: the run was stopped and nothing was written; a learning rate below {step_size:g} usually helps"
    )


def _check_single_row(module: nn.Module, rows: Rows) -> None:
    """Raise ConfigurationError if the network cannot learn from one row, as batch normalisation of vectors cannot."""
    with torch.random.fork_rng(devices=[]):
        try:
            copy.deepcopy(module).train()(torch.from_numpy(rows.inputs[:1]))
        except ValueError as error:
            raise ConfigurationError(
                f"this network cannot learn from a batch of one row ({error}); expected a batch_size of at least 2 for "
                "each process, and as many training rows"
            ) from error


def _batches(order: Tensor, batch_size: int, processes: int) -> list[Tensor]:
    """Return an epoch's batches; a remainder of fewer than two rows per process joins the previous batch.

    Batch normalisation cannot measure a single row, and a process without rows could not take part.
    """
    starts = list(range(0, len(order), batch_size))
    if len(starts) > 1 and len(order) - starts[-1] < min(2 * processes, batch_size):
        starts.pop()
    return [order[start:end] for start, end in zip(starts, [*starts[1:], len(order)], strict=True)]


def _identity(
    module: nn.Module, criterion: Criterion, rows: Rows, recipe: Recipe, validation: Rows | None
) -> dict[str, Any]:
    """Return the plain values that identify a run and its checkpoint."""
    told = {field.name: getattr(recipe, field.name) for field in fields(Recipe)}
    network = hashlib.sha256(str(module).encode())
    for name, tensor in module.state_dict().items():  # the seed's, or pretrained ones
        network.update(name.encode() + tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return told | {
        "loss": criterion.description,
        "network": network.hexdigest()[:16],
        "training rows": rows.digest(),
        "validation rows": None if validation is None else validation.digest(),
    }


def device_of(recipe: Recipe) -> torch.device:
    """Return a recipe's device; raises ConfigurationError if it requires CUDA and none is available."""
    available = torch.cuda.is_available()
    if recipe.device == "cuda" and not available:
        raise ConfigurationError("device is 'cuda', but PyTorch finds no usable GPU; try 'auto'")
    return torch.device("cuda" if available and recipe.device != "cpu" else "cpu")


def _emulates_bfloat16() -> bool:
    """Return whether the processor computes bfloat16 by way of float32, 8 times slower on an AMD EPYC.

    PyTorch's kernels for it need AVX-512, and use its instructions for bfloat16 where there are some.
    """
    capability = torch.backends.cpu.get_cpu_capability()
    return platform.machine() in ("x86_64", "AMD64") and not capability.startswith("AVX512")
