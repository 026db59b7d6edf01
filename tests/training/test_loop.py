"""The loop: it learns, it repeats itself, and it stops when there is nothing left to learn from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from training import DivergedError
from training.determinism import deterministic
from training.loop import Epoch, train
from training.losses import cross_entropy


class Pixels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.linear(images.flatten(1).to(torch.float32) / 255)
        return scores


def rows() -> tuple[np.ndarray, np.ndarray]:
    images = np.random.default_rng(0).integers(0, 256, (50, 2, 2, 1)).astype(np.uint8)
    return images, (images[:, 0, 0, 0] > 127).astype(np.int64)


def run(seed: int = 0, on_epoch: Callable[[Epoch], None] | None = None) -> tuple[nn.Module, list[Epoch]]:
    images, labels = rows()
    with deterministic(seed, 1):
        module = Pixels()
        history = train(
            module,
            cross_entropy,
            images,
            labels,
            epochs=20,
            batch_size=16,
            learning_rate=0.05,
            seed=seed,
            on_epoch=on_epoch,
        )
    return module, history


def test_it_learns_and_reports_every_epoch() -> None:
    seen: list[Epoch] = []
    module, history = run(on_epoch=seen.append)
    assert seen == history
    assert [epoch.number for epoch in history] == list(range(1, 21))
    assert history[-1].loss < history[0].loss / 2
    assert history[-1].accuracy > 0.9
    assert not module.training


def test_the_seed_decides_everything() -> None:
    (first, history), (second, again), (other, _) = run(1), run(1), run(2)
    assert history == again
    for one, two in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, two)
    assert not torch.equal(next(first.parameters()), next(other.parameters()))


def test_determinism_leaves_the_process_as_it_was() -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    threads = torch.get_num_threads()
    run()
    assert torch.equal(torch.rand(1), expected)
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_loss_that_is_no_number_stops_the_run_and_says_where() -> None:
    images, labels = rows()
    steps = 0

    def breaking(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        nonlocal steps
        steps += 1
        return cross_entropy(logits, targets) * (float("nan") if steps == 6 else 1.0)

    with pytest.raises(DivergedError, match=r"nan in epoch 2, step 2.*nothing is written.*learning rate below 0\.05"):
        train(Pixels(), breaking, images, labels, epochs=3, batch_size=16, learning_rate=0.05, seed=0)
    assert steps == 6
