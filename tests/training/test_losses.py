"""Losses: known values, identities, gradients, the theorems about them, and logits at the ends of the scale."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import Tensor

from training import ConfigurationError
from training.losses import (
    LOSSES,
    Criterion,
    correctness_ranking,
    cross_entropy,
    entropy_regularisation,
    focal,
    inverse_focal,
    label_smoothing,
    lp_norm,
    mmce,
    sample_dependent_focal,
    weighted_mmce,
)
from training.losses.correctness_ranking import CorrectnessHistory

HISTORY = torch.tensor([0.0, 1.0, 0.5, 0.5, 0.75, 0.25])
OF_THE_LABEL_ALONE = {"mmce", "weighted_mmce", "correctness_ranking"}  # they ask whether a prediction is right

# Every loss with coefficients that switch its own part off.
OFF = {
    "label_smoothing": {"epsilon": 0.0},
    "lp_norm": {"alpha": 0.0, "p": 3.0},
    "entropy_regularisation": {"beta": 0.0},
    "focal": {"gamma": 0.0},
    "inverse_focal": {"gamma": 0.0},
    "sample_dependent_focal": {"gamma_below": 0.0, "gamma_above": 0.0},
    "mmce": {"lam": 0.0},
    "weighted_mmce": {"lam": 0.0},
    "correctness_ranking": {"lam": 0.0, "history": HISTORY},
}

# Every loss with several coefficients, of which some are where a naive formula has no gradient.
ON: list[tuple[str, dict[str, Any]]] = [
    ("cross_entropy", {}),
    ("label_smoothing", {"epsilon": 0.09}),
    ("lp_norm", {"alpha": 0.1, "p": 1.0}),
    ("lp_norm", {"alpha": 0.1, "p": 1.5}),
    ("lp_norm", {"alpha": 0.1, "p": 12.0}),
    ("entropy_regularisation", {"beta": 0.1}),
    ("focal", {"gamma": 0.3}),
    ("focal", {"gamma": 1.0}),
    ("focal", {"gamma": 9.0}),
    ("inverse_focal", {"gamma": 0.5}),
    ("inverse_focal", {"gamma": 4.0}),
    ("sample_dependent_focal", {}),
    ("mmce", {"lam": 2.0}),
    ("weighted_mmce", {"lam": 2.0}),
    ("correctness_ranking", {"lam": 0.7, "history": HISTORY}),
]

logits_of_any_size = arrays.arrays(
    np.float64, st.tuples(st.integers(1, 6), st.integers(2, 7)), elements=st.floats(-30, 30, width=32)
)


def some_rows(seed: int = 0, dtype: torch.dtype = torch.float32, scale: float = 2.0) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(6, 4, dtype=torch.float64, generator=random)
    return logits.to(dtype), torch.randint(4, (6,), generator=random)


def one_hot(labels: Tensor, classes: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.nn.functional.one_hot(labels, classes).to(dtype)


# Known values


def test_cross_entropy_has_its_known_values_one_per_example() -> None:
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [math.log(3.0), 0.0, -torch.inf, -torch.inf]])
    losses = cross_entropy(logits, torch.tensor([1, 0]))
    torch.testing.assert_close(losses, torch.tensor([math.log(4.0), math.log(4 / 3)]))


LOG = [math.log(0.5), math.log(0.3), math.log(0.2)]  # as logits they are log-probabilities


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (partial(label_smoothing, epsilon=0.06), -0.94 * LOG[0] - 0.02 * sum(LOG)),
        (partial(lp_norm, alpha=0.5, p=1.0), -LOG[0] - 0.5 * sum(LOG)),
        (partial(lp_norm, alpha=0.5, p=2.0), -LOG[0] + 0.5 * math.hypot(*LOG)),
        (partial(entropy_regularisation, beta=2.0), -LOG[0] + 2 * (0.5 * LOG[0] + 0.3 * LOG[1] + 0.2 * LOG[2])),
        (partial(focal, gamma=3.0), -(0.5**3) * LOG[0]),
        (partial(inverse_focal, gamma=3.0), -(1.5**3) * LOG[0]),
        (sample_dependent_focal, -(0.5**3) * LOG[0]),
        (partial(sample_dependent_focal, threshold=0.6), -(0.5**5) * LOG[0]),
        (partial(mmce, lam=3.0), -LOG[0] + 3 * 0.5),
        (partial(weighted_mmce, lam=3.0), -LOG[0] + 3 * 0.5),
    ],
)
def test_known_values_where_the_prediction_is_a_half_three_tenths_and_a_fifth(loss: Any, expected: float) -> None:
    losses = loss(torch.tensor([LOG], dtype=torch.float64), torch.tensor([0]))
    assert losses.tolist() == pytest.approx([expected], rel=1e-12)


def test_mmce_is_the_double_sum_of_its_definition() -> None:
    logits, labels = some_rows(dtype=torch.float64)
    f = torch.softmax(logits, 1).numpy()
    r, c = f.max(axis=1), (f.argmax(axis=1) == labels.numpy()).astype(float)
    kernel = [[math.exp(-abs(one - other) / 0.4) for other in r] for one in r]
    rows = range(len(r))
    whole = sum((c[i] - r[i]) * (c[j] - r[j]) * kernel[i][j] for i in rows for j in rows) / len(r) ** 2
    added = mmce(logits, labels, lam=3.0) - cross_entropy(logits, labels)
    assert added.tolist() == pytest.approx([3 * math.sqrt(whole)] * len(r), rel=1e-9)

    right, wrong = [i for i in rows if c[i]], [i for i in rows if not c[i]]
    assert len(right) != len(wrong)
    assert right
    assert wrong
    parts = (
        sum((1 - r[i]) * (1 - r[j]) * kernel[i][j] for i in right for j in right) / len(right) ** 2
        + sum(r[i] * r[j] * kernel[i][j] for i in wrong for j in wrong) / len(wrong) ** 2
        - 2 * sum((1 - r[i]) * r[j] * kernel[i][j] for i in right for j in wrong) / len(right) / len(wrong)
    )
    added = weighted_mmce(logits, labels, lam=3.0) - cross_entropy(logits, labels)
    assert added.tolist() == pytest.approx([3 * math.sqrt(parts)] * len(r), rel=1e-9)


def test_correctness_ranking_compares_each_row_with_the_next_and_the_last_with_the_first() -> None:
    top = torch.tensor([0.9, 0.6, 0.7], dtype=torch.float64)
    logits = torch.stack([top.log(), (1 - top).log()], dim=1)
    labels, history = torch.zeros(3, dtype=torch.int64), torch.tensor([0.5, 1.0, 1.0])
    added = correctness_ranking(logits, labels, lam=2.0, history=history) - cross_entropy(logits, labels)
    # 0 was right less often than 1 and is surer by 0.3; 1 and 2 are level; 2 was right more often than 0 and less sure
    assert added.tolist() == pytest.approx([2 * (0.5 + 0.3), 0.0, 2 * (0.5 + 0.2)])


def test_correctness_ranking_asks_nothing_of_rows_in_the_right_order() -> None:
    logits, labels = torch.tensor([[9.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 0])
    history = torch.tensor([0.6, 0.2])
    torch.testing.assert_close(
        correctness_ranking(logits, labels, history=history), cross_entropy(logits, labels), rtol=0, atol=1e-6
    )


# Identities


@pytest.mark.parametrize("name", OFF)
@settings(max_examples=30, deadline=None)
@given(logits=logits_of_any_size, seed=st.integers(0, 99))
def test_a_coefficient_of_zero_gives_cross_entropy(name: str, logits: np.ndarray, seed: int) -> None:
    scores = torch.from_numpy(logits)
    labels = torch.from_numpy(np.random.default_rng(seed).integers(0, logits.shape[1], len(logits)))
    coefficients = OFF[name] | ({"history": torch.rand(len(logits))} if "history" in OFF[name] else {})
    losses = LOSSES[name](scores, labels, **coefficients)
    torch.testing.assert_close(losses, cross_entropy(scores, labels), rtol=1e-12, atol=1e-12)


def test_every_loss_has_a_test_of_its_identity_and_of_its_gradient() -> None:
    assert {"cross_entropy", *OFF} == set(LOSSES) == {name for name, _ in ON}


def test_without_history_correctness_ranking_is_cross_entropy() -> None:
    logits, labels = some_rows()
    assert torch.equal(correctness_ranking(logits, labels), cross_entropy(logits, labels))


@pytest.mark.parametrize(("name", "coefficients"), ON)
def test_weights_of_one_class_alone_are_a_label(name: str, coefficients: dict[str, Any]) -> None:
    logits, labels = some_rows(dtype=torch.float64)
    weights = one_hot(labels, 4)
    if name in OF_THE_LABEL_ALONE:
        with pytest.raises(ConfigurationError, match="one class for each example"):
            LOSSES[name](logits, weights, **coefficients)
        return
    expected = LOSSES[name](logits, labels, **coefficients)
    torch.testing.assert_close(LOSSES[name](logits, weights, **coefficients), expected)
    assert not torch.allclose(LOSSES[name](logits, weights.roll(1, 1), **coefficients), expected)


@pytest.mark.parametrize(
    "loss", [cross_entropy, label_smoothing, lp_norm, entropy_regularisation, focal, inverse_focal]
)
def test_a_mixed_label_gives_the_mixed_loss(loss: Any) -> None:
    logits, labels = some_rows(dtype=torch.float64)
    other = labels.roll(1)
    mixed = 0.3 * one_hot(labels, 4) + 0.7 * one_hot(other, 4)
    torch.testing.assert_close(loss(logits, mixed), 0.3 * loss(logits, labels) + 0.7 * loss(logits, other))


# Gradients


@pytest.mark.parametrize(("name", "coefficients"), ON)
def test_gradients_are_finite_differences(name: str, coefficients: dict[str, Any]) -> None:
    logits, labels = some_rows(dtype=torch.float64)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: LOSSES[name](z, labels, **coefficients), logits)


def test_the_gradient_of_cross_entropy_is_softmax_minus_onehot() -> None:
    logits, labels = some_rows(dtype=torch.float64)
    logits.requires_grad_()
    (gradient,) = torch.autograd.grad(cross_entropy(logits, labels).sum(), logits)
    torch.testing.assert_close(gradient, torch.softmax(logits, 1) - one_hot(labels, 4))


# Theorems


@settings(max_examples=200, deadline=None)
@given(logits=logits_of_any_size, scale=st.floats(1.0, 50.0), p=st.floats(1.0, 8.0))
def test_scaling_logits_up_raises_the_top_probability_and_the_norm(logits: np.ndarray, scale: float, p: float) -> None:
    small = torch.from_numpy(logits)
    top = small.argmax(dim=1)
    before, after = cross_entropy(small, top), cross_entropy(scale * small, top)
    assert (after <= before + 1e-12).all()  # the top probability is exp(−cross-entropy)
    second = small.topk(2, dim=1).values[:, 1]
    distinct = (small.amax(dim=1) - second > 1e-3) & (before > 1e-9) & torch.tensor(scale > 1.001)
    assert (after[distinct] < before[distinct]).all()
    norms = [lp_norm(z, top, alpha=1.0, p=p) - cross_entropy(z, top) for z in (small, scale * small)]
    torch.testing.assert_close(norms[1], scale * norms[0], rtol=1e-9, atol=1e-9)


@settings(max_examples=200, deadline=None)
@given(logits=logits_of_any_size, gamma=st.floats(1.0, 10.0), seed=st.integers(0, 99))
def test_focal_loss_bounds_divergence_less_entropy_from_above(logits: np.ndarray, gamma: float, seed: int) -> None:
    scores = torch.from_numpy(logits)
    labels = torch.from_numpy(np.random.default_rng(seed).integers(0, logits.shape[1], len(logits)))
    divergence_less_entropy = entropy_regularisation(scores, labels, beta=gamma)  # KL(y ‖ f) = −log f_y
    assert (focal(scores, labels, gamma=gamma) >= divergence_less_entropy - 1e-9).all()


@settings(max_examples=100, deadline=None)
@given(logits=logits_of_any_size, gamma=st.floats(0.1, 9.0), seed=st.integers(0, 99))
def test_focal_lies_below_cross_entropy_and_inverse_focal_above(logits: np.ndarray, gamma: float, seed: int) -> None:
    scores = torch.from_numpy(logits)
    labels = torch.from_numpy(np.random.default_rng(seed).integers(0, logits.shape[1], len(logits)))
    middle = cross_entropy(scores, labels)
    assert (focal(scores, labels, gamma=gamma) <= middle).all()
    assert (inverse_focal(scores, labels, gamma=gamma) >= middle).all()


# The ends of the scale


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("name", "coefficients"), ON)
def test_extreme_logits_have_finite_losses_and_gradients(
    name: str, coefficients: dict[str, Any], dtype: torch.dtype
) -> None:
    rows = [[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4], [1e4, 1e4, 1e4], [0.0, 0.0, 0.0], [-1e4, -1e4, 1e4], [40.0, 0.0, 0.0]]
    logits = torch.tensor(rows, dtype=dtype, requires_grad=True)
    for label in range(3):
        losses = LOSSES[name](logits, torch.full((6,), label), **coefficients)
        assert losses.dtype == torch.float32
        assert losses.isfinite().all()
        (gradient,) = torch.autograd.grad(losses.sum(), logits)
        assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("name", "coefficients"), ON)
def test_half_precision_logits_lose_nothing_more(name: str, coefficients: dict[str, Any], dtype: torch.dtype) -> None:
    logits, labels = some_rows(dtype=dtype)
    expected = LOSSES[name](logits.double(), labels, **coefficients).float()
    torch.testing.assert_close(LOSSES[name](logits, labels, **coefficients), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "coefficients"), ON)
def test_a_loss_is_the_same_number_inside_of_autocast(name: str, coefficients: dict[str, Any]) -> None:
    logits, labels = some_rows()
    logits.requires_grad_()
    expected = LOSSES[name](logits, labels, **coefficients)
    with torch.autocast("cpu", torch.bfloat16):
        losses = LOSSES[name](logits, labels, **coefficients)
    assert losses.dtype == torch.float32
    assert torch.equal(losses, expected)
    gradients = [torch.autograd.grad(each.sum(), logits)[0] for each in (losses, expected)]
    torch.testing.assert_close(gradients[0], gradients[1])


def test_a_norm_of_high_order_does_not_overflow() -> None:
    losses = lp_norm(torch.tensor([[1e4, 0.0]]), torch.tensor([0]), alpha=1.0, p=64.0)
    torch.testing.assert_close(losses, torch.tensor([1e4]))


# Coefficients out of range, and the criterion


@pytest.mark.parametrize(
    ("name", "coefficient", "value"),
    [
        ("label_smoothing", "epsilon", -0.01),
        ("label_smoothing", "epsilon", 1.0),
        ("lp_norm", "alpha", -1.0),
        ("lp_norm", "p", 0.5),
        ("lp_norm", "p", math.inf),
        ("entropy_regularisation", "beta", math.nan),
        ("focal", "gamma", -1.0),
        ("focal", "gamma", math.inf),
        ("inverse_focal", "gamma", 200.0),
        ("sample_dependent_focal", "gamma_below", -1.0),
        ("sample_dependent_focal", "gamma_above", -1.0),
        ("sample_dependent_focal", "threshold", 1.5),
        ("mmce", "lam", -1.0),
        ("weighted_mmce", "lam", -1.0),
        ("correctness_ranking", "lam", -1.0),
    ],
)
def test_a_coefficient_out_of_range_is_refused_before_training(name: str, coefficient: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=rf"{name}: {coefficient} is {value}, expected"):
        Criterion(LOSSES[name], {coefficient: value}, rows=10)


def test_a_criterion_says_its_coefficients_with_those_by_default() -> None:
    assert Criterion(LOSSES["lp_norm"], {"alpha": 0.5}, rows=3).description == "lp_norm(alpha=0.5, p=1)"
    assert Criterion(correctness_ranking, {}, rows=3).description == "correctness_ranking(lam=1)"
    assert "cross_entropy()" in repr(Criterion(cross_entropy, {}, rows=3))


@pytest.mark.parametrize("name", ["history", "gama", "logits"])
def test_a_coefficient_that_the_loss_has_not_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"unknown coefficients of the loss: {name}; expected lam"):
        Criterion(correctness_ranking, {name: 1.0}, rows=10)


@pytest.mark.parametrize("name", LOSSES)
def test_a_criterion_is_its_loss_on_the_first_pass(name: str) -> None:
    logits, labels = some_rows()
    criterion = Criterion(LOSSES[name], {}, rows=6)
    losses = criterion(logits, labels, torch.arange(6))
    assert losses.shape == (6,)
    expected = cross_entropy if name == "correctness_ranking" else LOSSES[name]
    torch.testing.assert_close(losses, expected(logits, labels))


def test_a_criterion_remembers_who_was_right_through_a_checkpoint() -> None:
    logits, rows = torch.tensor([[2.0, 0.0], [3.0, 0.0], [0.0, 1.0]]), torch.tensor([4, 0, 2])
    criterion = Criterion(correctness_ranking, {"lam": 0.5}, rows=5)
    criterion(logits, torch.tensor([0, 1, 1]), rows)
    criterion(logits, torch.tensor([0, 0, 1]), rows)
    resumed = Criterion(correctness_ranking, {"lam": 0.5}, rows=5)
    resumed.load_state_dict(criterion.state_dict())
    labels = torch.tensor([0, 0, 0])
    expected = correctness_ranking(logits, labels, lam=0.5, history=torch.tensor([1.0, 0.5, 1.0]))
    torch.testing.assert_close(resumed(logits, labels, rows), expected)
    assert not torch.equal(expected, cross_entropy(logits, labels))


def test_the_history_counts_only_rows_it_met() -> None:
    history = CorrectnessHistory(4)
    history.record(torch.tensor([1, 3]), torch.tensor([True, False]))
    history.record(torch.tensor([1, 0]), torch.tensor([False, True]))
    assert history.share(torch.arange(4)).tolist() == [1.0, 0.5, 0.0, 0.0]
