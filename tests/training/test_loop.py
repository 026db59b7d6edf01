"""The loop: it learns, it repeats itself, it goes on where it stopped, and it stops when nothing is left to learn."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from training import ConfigurationError, DivergedError, checkpoint, loop
from training.average import WeightAverage
from training.determinism import deterministic
from training.epochs import Epoch, OnEpoch, Outcome
from training.loop import Rows, train
from training.losses import LOSSES, Criterion
from training.recipe import Recipe

RECIPE = Recipe(epochs=20, batch_size=16, learning_rate=0.05)


class Scaled(nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1).to(torch.float32) / 255


class Pixels(nn.Sequential):
    """Preprocessing and network, one after the other."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__(Scaled(), nn.Sequential(nn.Dropout(dropout), nn.Linear(48, 2)))


def rows(count: int = 50, seed: int = 0) -> Rows:
    images = np.random.default_rng(seed).integers(0, 256, (count, 4, 4, 3)).astype(np.uint8)
    return Rows(images, (images[:, 0, 0, 0] > 127).astype(np.int64))


def run(
    recipe: Recipe = RECIPE,
    *,
    loss: str = "cross_entropy",
    dropout: float = 0.0,
    validation: Rows | None = None,
    keep: Path | None = None,
    on_epoch: OnEpoch | None = None,
) -> tuple[nn.Module, Outcome]:
    with deterministic(recipe.seed, recipe.threads):
        module = Pixels(dropout)
        criterion = Criterion(LOSSES[loss], {}, 50)
        outcome = train(module, criterion, rows(), recipe, validation=validation, keep=keep, on_epoch=on_epoch)
    return module, outcome


def same(one: nn.Module, two: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def timeless(outcome: Outcome) -> list[Epoch]:
    return [replace(epoch, seconds=0.0) for epoch in outcome.epochs]


def test_it_learns_and_reports_every_epoch() -> None:
    seen: list[Epoch] = []
    module, outcome = run(on_epoch=seen.append)
    assert seen == outcome.epochs
    assert [epoch.number for epoch in seen] == list(range(1, 21))
    assert seen[-1].loss < seen[0].loss / 2
    assert seen[-1].accuracy > 0.9
    assert outcome.best == 20
    assert not module.training


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_the_optimiser_is_pytorchs_own(optimiser: str) -> None:
    """Two epochs by hand, with the same order of rows."""
    recipe = Recipe(epochs=2, batch_size=20, learning_rate=0.1, optimiser=optimiser, weight_decay=0.01)  # type: ignore[arg-type]
    module, _ = run(recipe)
    with deterministic(0, 1):
        own = Pixels()
    if optimiser == "adam":
        steps: torch.optim.Optimizer = torch.optim.AdamW(own.parameters(), lr=0.1, weight_decay=0.01)
    else:
        steps = torch.optim.SGD(own.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    data, chance = rows(), torch.Generator().manual_seed(0)
    for _ in range(2):
        for batch in torch.randperm(50, generator=chance).split(20):
            logits = own(torch.from_numpy(data.inputs)[batch])
            steps.zero_grad()
            nn.functional.cross_entropy(logits, torch.from_numpy(data.labels)[batch]).backward()
            steps.step()
    for one, two in zip(module.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(one, two)


def test_the_seed_decides_everything() -> None:
    recipe = replace(RECIPE, crop=1, flip=True, cutout=1, mixup=0.2, accumulation=2, average=0.9)
    (first, history), (second, again), (other, _) = (run(replace(recipe, seed=seed), dropout=0.5) for seed in (1, 1, 2))
    assert timeless(history) == timeless(again)
    assert same(first, second)
    assert not same(first, other)


@pytest.mark.parametrize("loss", ["cross_entropy", "correctness_ranking"])
@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_an_interrupted_run_goes_on_to_the_same_result(tmp_path: Path, loss: str, optimiser: str) -> None:
    recipe = replace(RECIPE, epochs=6, optimiser=optimiser, schedule="cosine", crop=1, flip=True, average=0.9)
    keep, seen = tmp_path / "runs" / "checkpoint.pt", []

    def interrupt(epoch: Epoch) -> None:
        seen.append(epoch.number)
        if epoch.number == 3 and len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(recipe, loss=loss, dropout=0.5, validation=rows(40, 1), keep=keep, on_epoch=interrupt)
    assert keep.exists()
    resumed, after = run(recipe, loss=loss, dropout=0.5, validation=rows(40, 1), keep=keep, on_epoch=interrupt)
    straight, before = run(recipe, loss=loss, dropout=0.5, validation=rows(40, 1))
    assert seen == [1, 2, 3, 4, 5, 6]
    assert timeless(after) == timeless(before)
    assert np.array_equal(after.learned, before.learned)
    assert same(resumed, straight)
    assert list(keep.parent.iterdir()) == [keep]  # the caller removes it


@pytest.mark.parametrize("loss", ["cross_entropy", "correctness_ranking"])
def test_a_run_that_was_killed_within_an_epoch_goes_on_from_its_last_step(
    loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "SAVED_EVERY_S", 0.0)  # after every step
    recipe = replace(RECIPE, epochs=3, batch_size=10, schedule="cosine", crop=1, flip=True, average=0.9)
    recipe = recipe if loss == "correctness_ranking" else replace(recipe, mixup=0.2)
    keep, steps, real = tmp_path / "checkpoint.pt", 0, checkpoint.write

    def killed(*arguments: Any) -> None:
        nonlocal steps
        steps += 1
        real(*arguments)
        if steps in (2, 8):  # of five in an epoch
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "write", killed)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(recipe, loss=loss, dropout=0.5, validation=rows(40, 1), keep=keep)
    resumed, after = run(recipe, loss=loss, dropout=0.5, validation=rows(40, 1), keep=keep)
    assert steps == 15  # none was taken twice
    straight, before = run(recipe, loss=loss, dropout=0.5, validation=rows(40, 1))
    assert timeless(after) == timeless(before)
    assert np.array_equal(after.learned, before.learned)
    assert same(resumed, straight)


def test_a_kill_before_a_checkpoint_loses_no_epoch_of_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep, seen, real = tmp_path / "checkpoint.pt", [], checkpoint.write

    def killed(*arguments: Any) -> None:
        if seen == [1, 2]:
            raise KeyboardInterrupt
        real(*arguments)

    monkeypatch.setattr(checkpoint, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        run(keep=keep, on_epoch=lambda epoch: seen.append(epoch.number))
    run(keep=keep, on_epoch=lambda epoch: seen.append(epoch.number))
    assert seen == [1, 2, *range(2, RECIPE.epochs + 1)]


class Normalised(nn.Sequential):
    """Preprocessing, and a network with all that keeps a state: batch normalisation and dropout."""

    def __init__(self) -> None:
        inner = nn.Sequential(nn.Linear(48, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))
        super().__init__(Scaled(), inner)


EVERYTHING = Recipe(
    epochs=12,
    batch_size=16,
    optimiser="sgd",
    learning_rate=0.2,
    nesterov=True,
    weight_decay=1e-3,
    schedule="step",
    milestones=(2, 5),
    warm_up=1.5,
    clip=0.5,
    crop=1,
    flip=True,
    cutout=2,
    mixup=0.4,
    precision="bfloat16",
    channels_last=True,
    patience=4,
)


@pytest.mark.parametrize("stop", [1, 4, 6])
def test_with_every_feature_on_an_interrupted_run_goes_on_to_the_same_result(tmp_path: Path, stop: int) -> None:
    def learn(keep: Path | None, on_epoch: OnEpoch | None) -> tuple[nn.Module, Outcome]:
        with deterministic(0, 1):
            module = Normalised()
            criterion = Criterion(LOSSES["label_smoothing"], {"epsilon": 0.1}, 50)
            held_out = rows(40, 1)
            return module, train(
                module, criterion, rows(), EVERYTHING, validation=held_out, keep=keep, on_epoch=on_epoch
            )

    def interrupt(epoch: Epoch) -> None:
        if epoch.number == stop:
            raise KeyboardInterrupt

    straight, before = learn(None, None)
    assert (before.best, len(before.epochs)) == (3, 7)  # it stops early, and the best weights are older
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path / "checkpoint.pt", interrupt)
    resumed, after = learn(tmp_path / "checkpoint.pt", None)
    assert timeless(after) == timeless(before)
    assert after.best == before.best
    assert np.array_equal(after.learned, before.learned)
    states = straight.state_dict(), resumed.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_checkpoint_of_another_loss_network_or_data_is_refused(tmp_path: Path) -> None:
    """None of them is in the recipe."""
    keep = tmp_path / "checkpoint.pt"

    def interrupt(epoch: Epoch) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(keep=keep, validation=rows(40, 1), on_epoch=interrupt)
    with pytest.raises(ConfigurationError, match=r"loss was 'cross_entropy\(\)' and is 'focal\(gamma=3\)'"):
        run(keep=keep, validation=rows(40, 1), loss="focal")
    with pytest.raises(ConfigurationError, match="network was"):
        run(keep=keep, validation=rows(40, 1), dropout=0.5)
    with pytest.raises(ConfigurationError, match="network was"):  # the same layers with other weights
        train(Pixels(), Criterion(LOSSES["cross_entropy"], {}, 50), rows(), RECIPE, validation=rows(40, 1), keep=keep)
    with pytest.raises(ConfigurationError, match="validation rows was"):
        run(keep=keep, validation=rows(40, 2))
    with pytest.raises(ConfigurationError, match="training rows was"):
        train(Pixels(), Criterion(LOSSES["cross_entropy"], {}, 50), rows(seed=5), RECIPE, keep=keep)


def test_a_checkpoint_of_another_run_or_of_nothing_is_refused(tmp_path: Path) -> None:
    keep = tmp_path / "checkpoint.pt"

    def interrupt(epoch: Epoch) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(keep=keep, on_epoch=interrupt)
    with pytest.raises(ConfigurationError, match=r"belongs to another run: learning_rate was 0\.05 and is 0\.01"):
        run(replace(RECIPE, learning_rate=0.01), keep=keep)
    whole = keep.read_bytes()
    for damaged in (b"", b"no checkpoint", b"application,income\na-1,2\n", whole[: len(whole) // 2]):
        keep.write_bytes(damaged)
        with pytest.raises(ConfigurationError, match="is not a valid checkpoint of a training run; remove it"):
            run(keep=keep)
        assert keep.read_bytes() == damaged


def test_early_stopping_brings_the_best_weights_back() -> None:
    recipe = replace(RECIPE, epochs=200, learning_rate=0.3, patience=5)
    held_out = rows(40, 1)
    module, outcome = run(recipe, validation=held_out)
    nlls = [epoch.validation.nll for epoch in outcome.epochs if epoch.validation is not None]
    assert len(nlls) < 200
    assert outcome.best == int(np.argmin(nlls)) + 1 == len(nlls) - 5
    with torch.inference_mode():
        logits = module(torch.from_numpy(held_out.inputs))
    assert nn.functional.cross_entropy(logits, torch.from_numpy(held_out.labels)).item() == pytest.approx(min(nlls))


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_a_step_in_parts_is_the_step_of_the_whole_batch(optimiser: str) -> None:
    """50 rows in batches of 16 leave 2 for the last step, which is too small for parts of its own."""
    sizes: list[int] = []

    class Watched(Pixels):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            sizes.append(len(images))
            logits: torch.Tensor = super().forward(images)
            return logits

    recipe = replace(RECIPE, epochs=3, optimiser=optimiser, clip=0.1, learning_rate=0.02)
    whole, told = run(recipe)
    with deterministic(recipe.seed, recipe.threads):
        parts = Watched()
        criterion = Criterion(LOSSES["cross_entropy"], {}, 50)
        again = train(parts, criterion, rows(), replace(recipe, accumulation=3))
    assert sizes[:10] == [6, 5, 5, 6, 5, 5, 6, 5, 5, 2]
    for one, two in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(one, two)
    assert [epoch.accuracy for epoch in again.epochs] == [epoch.accuracy for epoch in told.epochs]
    np.testing.assert_allclose([epoch.loss for epoch in again.epochs], [epoch.loss for epoch in told.epochs], rtol=1e-5)


def test_no_part_of_a_step_has_a_single_row() -> None:
    """Batch normalisation refuses one alone."""
    with deterministic(0, 1):
        outcome = train(
            Normalised(),
            Criterion(LOSSES["cross_entropy"], {}, 49),
            rows(49),
            replace(RECIPE, epochs=1, accumulation=100),
        )
    assert len(outcome.learned) == 49


def test_weights_that_layers_share_are_averaged_once_a_step() -> None:
    network = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    network[1].weight = network[0].weight
    average, before = WeightAverage(network, decay=0.99), network[0].weight.item()
    with torch.no_grad():
        network[0].weight.add_(11)
    average.update(network)
    kept = average.module.get_parameter("1.weight").item()
    assert kept - before == pytest.approx(11 * (1 - 2 / 11), rel=1e-5)


def test_the_average_of_the_weights_is_evaluated_and_kept() -> None:
    """Weights of each step by hand, with the same order of rows: one step an epoch."""
    recipe = Recipe(epochs=5, batch_size=50, optimiser="sgd", momentum=0.0, learning_rate=0.5, average=0.3)
    validation = rows(40, seed=1)
    module, outcome = run(recipe, validation=validation)
    with deterministic(0, 1):
        own = Pixels()
    data = rows()
    average = [parameter.detach().clone() for parameter in own.parameters()]
    for step in range(1, 6):
        own.zero_grad()
        nn.functional.cross_entropy(own(torch.from_numpy(data.inputs)), torch.from_numpy(data.labels)).backward()
        decay = min(0.3, (1 + step) / (10 + step))
        with torch.no_grad():
            for parameter, mean in zip(own.parameters(), average, strict=True):
                parameter -= 0.5 * parameter.grad
                mean.copy_(decay * mean + (1 - decay) * parameter)
    for kept, mean, last in zip(module.parameters(), average, own.parameters(), strict=True):
        torch.testing.assert_close(kept, mean)
        assert not torch.allclose(kept, last)
    logits = module(torch.from_numpy(validation.inputs)).detach()
    told = outcome.epochs[-1].validation
    assert told is not None
    assert told.nll == pytest.approx(nn.functional.cross_entropy(logits, torch.from_numpy(validation.labels)).item())


def test_a_validation_loss_that_stays_is_no_better() -> None:
    """A network without weights that matter: its NLL is the same in every epoch, and the first one is the best."""

    class Constant(Pixels):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = super().forward(images)
            return 0.0 * logits

    with deterministic(0, 1):
        criterion = Criterion(LOSSES["cross_entropy"], {}, 50)
        outcome = train(Constant(), criterion, rows(), replace(RECIPE, patience=3), validation=rows(40, 1))
    assert outcome.best == 1
    assert len(outcome.epochs) == 4


def test_a_last_batch_of_one_row_joins_the_one_before_it() -> None:
    """Batch normalisation over rows refuses one alone: 49 rows in batches of 16 are 16, 16 and 17."""
    sizes: list[int] = []

    class Watched(Normalised):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            sizes.append(len(images))
            logits: torch.Tensor = super().forward(images)
            return logits

    with deterministic(0, 1):
        outcome = train(Watched(), Criterion(LOSSES["cross_entropy"], {}, 49), rows(49), replace(RECIPE, epochs=1))
    assert sizes == [16, 16, 17]
    assert len(outcome.learned) == 49
    assert outcome.epochs[0].accuracy * 49 == pytest.approx(round(outcome.epochs[0].accuracy * 49))


def test_of_mixed_rows_the_label_of_more_weight_is_the_right_one() -> None:
    """Inputs are their labels, so that a network that passes them on always names the label of more weight."""
    labels = np.arange(60) % 3

    class Weighted(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Identity(), nn.Linear(3, 3))
            with torch.no_grad():
                self[1].weight.copy_(torch.eye(3))
                self[1].bias.zero_()

    recipe = Recipe(epochs=3, batch_size=20, optimiser="sgd", momentum=0.0, learning_rate=1e-9, mixup=0.3)
    with deterministic(0, 1):
        outcome = train(
            Weighted(),
            Criterion(LOSSES["cross_entropy"], {}, 60),
            Rows(np.eye(3, dtype=np.float32)[labels], labels.astype(np.int64)),
            recipe,
        )
    assert [epoch.accuracy for epoch in outcome.epochs] == [1.0, 1.0, 1.0]


def test_early_stopping_needs_rows_to_stop_by() -> None:
    with pytest.raises(ConfigurationError, match="requires validation rows"):
        run(replace(RECIPE, patience=3))


def test_augmentation_needs_images() -> None:
    with pytest.raises(ConfigurationError, match=r"found inputs of shape \(4, 7\)"):
        train(
            nn.Linear(7, 2),
            Criterion(LOSSES["cross_entropy"], {}, 4),
            Rows(np.zeros((4, 7), np.float32), np.zeros(4, np.int64)),
            replace(RECIPE, flip=True),
        )


def test_the_learned_epoch_is_that_since_which_a_row_was_right() -> None:
    data, right = rows(), []

    class Watched(Pixels):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = super().forward(images)
            if self.training:
                keys = [image.numpy().tobytes() for image in images]
                right.append(dict(zip(keys, logits.argmax(dim=1).tolist(), strict=True)))
            return logits

    with deterministic(0, 1):
        outcome = train(Watched(), Criterion(LOSSES["cross_entropy"], {}, 50), data, replace(RECIPE, epochs=8))
    steps = len(right) // 8
    for row, label, learned in zip(data.inputs, data.labels, outcome.learned, strict=True):
        answers = [
            next(met[row.tobytes()] for met in right[epoch * steps : (epoch + 1) * steps] if row.tobytes() in met)
            for epoch in range(8)
        ]
        wrong = [epoch for epoch, answer in enumerate(answers, start=1) if answer != label]
        assert learned == (wrong[-1] + 1 if wrong else 1)


def test_clipping_bounds_the_step() -> None:
    recipe = Recipe(epochs=1, batch_size=50, optimiser="sgd", momentum=0.0, learning_rate=1.0, clip=1e-3)
    with deterministic(0, 1):
        before = Pixels()
    after, _ = run(recipe)
    moved = torch.cat([(a - b).flatten() for a, b in zip(after.parameters(), before.parameters(), strict=True)])
    assert moved.norm().item() == pytest.approx(1e-3, rel=1e-3)


def test_half_precision_and_layout_change_little() -> None:
    _, plain = run(replace(RECIPE, epochs=3))
    _, half = run(replace(RECIPE, epochs=3, precision="bfloat16", channels_last=True))
    assert half.epochs[-1].loss == pytest.approx(plain.epochs[-1].loss, rel=0.02)
    assert half.epochs != plain.epochs


@pytest.mark.parametrize(
    ("machine", "capability", "slow"),
    [("x86_64", "AVX2", True), ("x86_64", "AVX512", False), ("arm64", "DEFAULT", False)],
)
def test_a_processor_that_emulates_half_precision_is_said(
    machine: str, capability: str, slow: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    run(replace(RECIPE, epochs=1, device="cpu"))
    assert not caplog.messages
    run(replace(RECIPE, epochs=1, device="cpu", precision="bfloat16"))
    assert any("float32 is several times faster here" in line for line in caplog.messages) == slow


def test_determinism_leaves_the_process_as_it_was() -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    threads = torch.get_num_threads()
    run(replace(RECIPE, epochs=2))
    assert torch.equal(torch.rand(1), expected)
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_loss_that_is_no_number_stops_the_run_and_says_where() -> None:
    class Breaking(Pixels):
        steps = 0

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            self.steps += 1
            return super().forward(images) * (float("nan") if self.steps == 6 else 1.0)

    module = Breaking()
    with pytest.raises(DivergedError, match=r"nan in epoch 2, step 2.*nothing was written.*learning rate below 0\.05"):
        train(module, Criterion(LOSSES["cross_entropy"], {}, 50), rows(), replace(RECIPE, epochs=3))
    assert module.steps == 6


def test_a_network_that_cannot_learn_from_one_row_is_refused_before_the_first_step() -> None:
    normalised = nn.Sequential(Pixels(), nn.BatchNorm1d(2))
    with pytest.raises(
        ConfigurationError, match=r"a batch of one row \(Expected more than 1.*batch_size of at least 2"
    ):
        train(normalised, Criterion(LOSSES["cross_entropy"], {}, 3), rows(3), Recipe(epochs=1, batch_size=1))


def test_weights_that_the_last_step_breaks_stop_the_run_too() -> None:
    """The loss of every step is finite; its gradient is not."""

    class Edge(Pixels):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = super().forward(images)
            return logits + (logits - logits.detach()).abs().sqrt()  # 0, of infinite slope

    with pytest.raises(DivergedError, match=r"1\.1\.weight is no longer finite after epoch 1.*nothing was written"):
        train(Edge(), Criterion(LOSSES["cross_entropy"], {}, 50), rows(), Recipe(epochs=1, batch_size=50))


def test_validation_logits_that_are_no_numbers_stop_the_run() -> None:
    class Overflowing(Pixels):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = super().forward(images)
            return logits if self.training else logits * float("inf")

    with pytest.raises(DivergedError, match="logits of validation rows are no longer finite after epoch 1"):
        train(
            Overflowing(),
            Criterion(LOSSES["cross_entropy"], {}, 50),
            rows(),
            replace(RECIPE, epochs=1),
            validation=rows(40, 1),
        )


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # of the compiler's own
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler here")
@pytest.mark.parametrize("mixup", [0.0, 0.3])
def test_a_compiled_network_learns_the_same(mixup: float, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import config as inductor

    if mixup:  # which parts are compiled, not how: without a C++ compiler, which takes ten seconds
        monkeypatch.setattr(torch.nn.Module, "compile", partialmethod(torch.nn.Module.compile, backend="aot_eager"))
    recipe = replace(RECIPE, epochs=2, mixup=mixup)
    _, plain = run(recipe, validation=rows(40, 1))
    # A pool of compilers would import PyTorch in each of its processes; precompiled headers pay for many sources.
    with inductor.patch({"compile_threads": 1, "cpp_cache_precompile_headers": False}):
        module, compiled = run(replace(recipe, compile=True), validation=rows(40, 1))
    for one, other in zip(plain.epochs, compiled.epochs, strict=True):
        assert other.loss == pytest.approx(one.loss, rel=1e-4)
    # Where rows are mixed, its parts are called one by one, and each must have been compiled.
    parts = module.children() if mixup else [module]
    assert all(part._compiled_call_impl is not None for part in parts)


@pytest.mark.gpu
@pytest.mark.skipif(torch.version.cuda is None, reason="this PyTorch is built without CUDA")
@pytest.mark.parametrize("mixup", [0.0, 0.3])
def test_a_gpu_learns_and_evaluates_as_the_cpu_does(mixup: float) -> None:
    recipe = replace(RECIPE, epochs=3, mixup=mixup, crop=1, flip=True, cutout=1)
    _, here = run(recipe, validation=rows(40, 1))
    module, there = run(replace(recipe, device="cuda"), validation=rows(40, 1))
    assert all(parameter.device.type == "cpu" for parameter in module.parameters())
    for one, other in zip(here.epochs, there.epochs, strict=True):
        assert other.loss == pytest.approx(one.loss, rel=1e-3)
        assert one.validation is not None
        assert other.validation is not None
        assert other.validation.nll == pytest.approx(one.validation.nll, rel=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(torch.version.cuda is None, reason="this PyTorch is built without CUDA")
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler here")
@pytest.mark.filterwarnings("ignore")  # of the compiler's own
def test_a_gpu_learns_compiled_in_half_precision() -> None:
    recipe = replace(RECIPE, epochs=3, device="cuda")
    _, full = run(recipe)
    _, half = run(replace(recipe, precision="bfloat16", channels_last=True, compile=True))
    assert half.epochs[-1].loss == pytest.approx(full.epochs[-1].loss, rel=0.05)
    assert half.epochs[-1].loss < half.epochs[0].loss


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_said() -> None:
    with pytest.raises(ConfigurationError, match="no usable GPU; try 'auto'"):
        run(replace(RECIPE, device="cuda"))
