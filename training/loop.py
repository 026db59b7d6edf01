"""The training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training import checkpoint
from training.augment import Augmentation
from training.errors import ConfigurationError, DivergedError
from training.evaluate import Evaluation, evaluate
from training.export import logits_of
from training.learned_epoch import LearnedEpochs
from training.losses import Criterion
from training.mixup import mixup
from training.recipe import Recipe
from training.team import ALONE, Team

_AUGMENTATION, _MIXTURE, _NETWORK = range(3)  # streams of chance beside the order of the rows


@dataclass(frozen=True)
class Rows:
    """Stored examples and their labels.

    Attributes:
        inputs: (N, …), as a bundle's graph takes them.
        labels: int64 (N,).
    """

    inputs: NDArray[Any]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Epoch:
    """One pass over the training rows.

    Attributes:
        number: Counted from 1.
        of: Number of epochs.
        loss: Mean loss over the rows, as they were met.
        accuracy: Share of rows whose top label was right, as they were met; of mixed rows, the commoner label.
        seconds: How long it took, evaluation left out.
        learning_rate: At its last step.
        validation: How the network did on the validation rows, if there are any.
    """

    number: int
    of: int
    loss: float
    accuracy: float
    seconds: float = 0.0
    learning_rate: float = 0.0
    validation: Evaluation | None = None


@dataclass(frozen=True)
class Outcome:
    """What training left behind beside the weights.

    Attributes:
        epochs: All of them, those before an interruption included.
        best: Number of the epoch whose weights the module has.
        learned: Learned epoch of each training row, int32 (N,).
    """

    epochs: list[Epoch]
    best: int
    learned: NDArray[np.int32]


def train(
    module: nn.Module,
    criterion: Criterion,
    rows: Rows,
    recipe: Recipe,
    *,
    validation: Rows | None = None,
    keep: Path | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    team: Team = ALONE,
) -> Outcome:
    """Minimise the mean loss.

    Args:
        module: From stored inputs to logits, preprocessing and network one after the other where rows are to be mixed;
            trained in place, and left on the CPU in evaluation mode.
        criterion: From logits (n, K), labels (n,) and row numbers (n,) to losses (n,).
        rows: The training rows.
        recipe: How to train.
        validation: Rows to evaluate on after each epoch; early stopping needs them.
        keep: File of a checkpoint, written after each epoch and removed at the end. Where it is there already, the run
            goes on from it, to the same result.
        on_epoch: Called after every epoch, in the first process of the team; not again for epochs of the checkpoint.
        team: The processes that train together.

    Returns:
        The epochs, and what was noted of each row.

    Raises:
        ConfigurationError: The recipe does not suit the rows, or the checkpoint belongs to another run.
        DivergedError: The loss of a step is not finite.
    """
    if recipe.patience is not None and validation is None:
        raise ConfigurationError(f"patience is {recipe.patience}, expected validation rows to stop early by")
    if (recipe.crop or recipe.flip or recipe.cutout) and rows.inputs.ndim != 4:
        raise ConfigurationError(
            f"crop, flip and cutout change images, (N, H, W, C), found inputs of shape {rows.inputs.shape}"
        )
    run = _Run(module, criterion, rows, recipe, validation, team)
    asked = {field.name: getattr(recipe, field.name) for field in fields(Recipe)} | {"rows": len(rows)}
    if keep is not None and (state := checkpoint.read(keep, asked)) is not None:
        run.restore(state)
    while not run.finished:
        epoch = run.epoch()
        if team.leads:
            if keep is not None:
                checkpoint.write(keep, asked, run.state())
            if on_epoch is not None:
                on_epoch(epoch)
    outcome = run.finish()
    if keep is not None and team.leads:
        keep.unlink(missing_ok=True)
    return outcome


class _Run:
    """The state of a run between two epochs."""

    def __init__(
        self,
        module: nn.Module,
        criterion: Criterion,
        rows: Rows,
        recipe: Recipe,
        validation: Rows | None,
        team: Team,
    ) -> None:
        self._device = device_of(recipe)
        self._module = module.to(self._device)
        if recipe.channels_last:
            # Weights of convolutions over images alone have four axes.
            for parameter in module.parameters():
                if parameter.ndim == 4:
                    parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
        if recipe.compile:
            module.compile()
        self._network = team.wrap(_Mixing(module, rows, recipe.mixup) if recipe.mixup else module)
        self._criterion = criterion.to(self._device)
        self._learned = LearnedEpochs(len(rows)).to(self._device)
        self._inputs = torch.from_numpy(np.ascontiguousarray(rows.inputs)).to(self._device)
        self._labels = torch.from_numpy(rows.labels).to(self._device)
        self._recipe, self._validation, self._team = recipe, validation, team
        self._optimiser = _optimiser(module, recipe, self._device)
        self._order = torch.Generator().manual_seed(recipe.seed)
        self._chance = torch.Generator()
        self._augment = Augmentation(recipe, self._chance)
        self._epochs: list[Epoch] = []
        self._best: dict[str, Tensor] | None = None
        self._best_number = 0

    @property
    def finished(self) -> bool:
        done, patience = len(self._epochs), self._recipe.patience
        return done == self._recipe.epochs or (patience is not None and done - self._best_number >= patience > 0 < done)

    def epoch(self) -> Epoch:
        recipe, number = self._recipe, len(self._epochs) + 1
        count = len(self._labels)
        order = torch.randperm(count, generator=self._order)
        self._chance.manual_seed(self._seed(_AUGMENTATION, number))
        mixture = np.random.default_rng(self._seed(_MIXTURE, number))
        if self._team.size > 1:
            torch.manual_seed(self._seed(_NETWORK, number))  # of dropout; one process alone goes on where it was
        starts = range(0, count, recipe.batch_size)
        means = torch.zeros(len(starts), device=self._device)
        totals = torch.zeros(2, dtype=torch.float64, device=self._device)
        began = time.perf_counter()
        self._module.train()
        with self._team.merging([*self._criterion.buffers(), *self._learned.buffers()]):
            for step, start in enumerate(starts):
                batch = order[start : start + recipe.batch_size]
                step_size = recipe.step_size(number - 1 + step / len(starts))
                for group in self._optimiser.param_groups:
                    group["lr"] = step_size
                means[step] = self._step(number, batch, totals, mixture)
                # To ask a GPU for a number is to wait for it.
                if self._device.type == "cpu" or step + 1 == len(starts):
                    self._check(means[: step + 1], number, step_size)
            loss, right = (self._team.total(totals) / count).tolist()
        seconds = time.perf_counter() - began
        evaluation = self._team.from_leader(self._evaluate)
        epoch = Epoch(number, recipe.epochs, loss, right, seconds, step_size, evaluation)
        self._epochs.append(epoch)
        self._remember_best(epoch)
        return epoch

    def _seed(self, stream: int, epoch: int) -> int:
        """A seed for each stream, epoch and process."""
        mixed = np.random.SeedSequence([self._recipe.seed, stream, epoch, self._team.rank])
        return int(mixed.generate_state(1, np.uint64)[0] >> np.uint64(1))

    def _step(self, number: int, batch: Tensor, totals: Tensor, mixture: np.random.Generator) -> Tensor:
        """One step on the rows of a batch; adds the sum of its losses and of its right answers to `totals`."""
        whole = len(batch)
        batch = self._team.share(batch).to(self._device)
        shown = batch if len(batch) else batch.new_zeros(1)  # a process without rows still takes part
        inputs, labels = self._augment(self._inputs[shown]), self._labels[shown]
        with self._precision():
            if self._recipe.mixup:
                logits, targets = self._network(inputs, labels, mixture)
            else:
                logits, targets = self._network(inputs), labels
        losses = self._criterion(logits, targets, shown)
        # Gradients are averaged over the team: each process weighs its rows as if the batch were its own.
        mean: Tensor = losses.mean() if self._team.size == 1 else losses[: len(batch)].sum() * self._team.size / whole
        self._optimiser.zero_grad()
        torch.autograd.backward(mean)
        if self._recipe.clip is not None:
            nn.utils.clip_grad_norm_(self._module.parameters(), self._recipe.clip)
        self._optimiser.step()
        right = (logits.detach().argmax(dim=1) == labels)[: len(batch)]
        self._learned.record(number, batch, right)
        totals += torch.stack([losses[: len(batch)].detach().sum(), right.sum()])
        return mean.detach()

    def _check(self, means: Tensor, number: int, step_size: float) -> None:
        finite = torch.isfinite(means)
        if finite.all():
            return
        step = int((~finite).int().argmax())
        raise DivergedError(
            f"the loss became {means[step].item()} in epoch {number}, step {step + 1}: the run is stopped and nothing "
            f"is written; a learning rate below {step_size:g} usually helps"
        )

    def _precision(self) -> AbstractContextManager[object]:
        if self._recipe.precision == "float32":
            return nullcontext()
        return torch.autocast(self._device.type, torch.bfloat16)

    def _evaluate(self) -> Evaluation | None:
        if self._validation is None:
            return None
        self._module.eval()
        return evaluate(logits_of(self._module, self._validation.inputs), self._validation.labels)

    def _remember_best(self, epoch: Epoch) -> None:
        """Notes the weights of the lowest validation NLL where training may stop early, else the newest."""
        if self._recipe.patience is None or epoch.validation is None:
            self._best_number = epoch.number
            return
        nlls = [math.inf if seen.validation is None else seen.validation.nll for seen in self._epochs]
        if epoch.validation.nll <= min(nlls):
            self._best_number = epoch.number
            self._best = {name: tensor.detach().clone() for name, tensor in self._module.state_dict().items()}

    def finish(self) -> Outcome:
        if self._best is not None:
            self._module.load_state_dict(self._best)
        self._module.cpu().eval()
        return Outcome(self._epochs, self._best_number, self._learned.epochs().cpu().numpy())

    def state(self) -> dict[str, Any]:
        return {
            "module": self._module.state_dict(),
            "criterion": self._criterion.state_dict(),
            "learned": self._learned.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "best": self._best,
            "best_number": self._best_number,
            "epochs": [asdict(epoch) for epoch in self._epochs],
            "order": self._order.get_state(),
            "chance": torch.get_rng_state(),
            "device_chance": torch.cuda.get_rng_state() if self._device.type == "cuda" else None,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._module.load_state_dict(state["module"])
        self._criterion.load_state_dict(state["criterion"])
        self._learned.load_state_dict(state["learned"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._best, self._best_number = state["best"], state["best_number"]
        self._epochs = [epoch_from(document) for document in state["epochs"]]
        self._order.set_state(state["order"])
        torch.set_rng_state(state["chance"])
        if state["device_chance"] is not None:
            torch.cuda.set_rng_state(state["device_chance"])


class _Mixing(nn.Module):
    """A network that is shown points between its examples, mixed after the preprocessing.

    Args:
        module: Preprocessing and network, one after the other.
        rows: The training rows.
        alpha: Both parameters of the Beta distribution.
    """

    def __init__(self, module: nn.Module, rows: Rows, alpha: float) -> None:
        super().__init__()
        self.preprocessing, self.network = module.children()
        self.classes = logits_of(module.eval(), rows.inputs[:1]).shape[1]
        self.alpha = alpha

    def forward(self, inputs: Tensor, labels: Tensor, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
        mixed, weights = mixup(self.preprocessing(inputs), labels, self.classes, alpha=self.alpha, generator=generator)
        return self.network(mixed), weights


def device_of(recipe: Recipe) -> torch.device:
    """The device that a recipe asks for.

    Raises:
        ConfigurationError: It asks for CUDA, and there is none.
    """
    available = torch.cuda.is_available()
    if recipe.device == "cuda" and not available:
        raise ConfigurationError("device is 'cuda', expected a GPU that PyTorch can use, found none; try 'auto'")
    return torch.device("cuda" if available and recipe.device != "cpu" else "cpu")


def _optimiser(module: nn.Module, recipe: Recipe, device: torch.device) -> torch.optim.Optimizer:
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    fused = device.type == "cuda" or None
    if recipe.optimiser == "adam":
        kind = torch.optim.AdamW if recipe.weight_decay else torch.optim.Adam
        return kind(parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=fused)
    return torch.optim.SGD(
        parameters,
        lr=recipe.learning_rate,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov,
        weight_decay=recipe.weight_decay,
        fused=fused,
    )


def epoch_from(document: dict[str, Any]) -> Epoch:
    """The epoch of which `dataclasses.asdict` made a document."""
    validation = document["validation"]
    return Epoch(**{**document, "validation": None if validation is None else Evaluation(**validation)})
