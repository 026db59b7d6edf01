"""Costs as expressions: what they are worth at any amount, and what is refused."""

from __future__ import annotations

import math
import random

import pytest

from candor.contract.expressions import LARGEST_AMOUNT, LONGEST, Expression, ExpressionError

AMOUNTS = (0.0, 0.3, 1.0, 7.0, 20.0, 99.0, 1234.5, 1e6)


def written(rng: random.Random, depth: int) -> str:
    """Return a random expression that is piecewise linear by its form."""
    draw = rng.random()
    if depth == 0 or draw < 0.3:
        return rng.choice(["amount", str(rng.choice([0.5, 2, 3, 10, 0.02, 100]))])
    left, right = written(rng, depth - 1), written(rng, depth - 1)
    if draw < 0.6:
        return f"({left} {rng.choice('+-')} {right})"
    if draw < 0.75:
        return f"{rng.choice([2, 0.5, 3])} * {left}"
    return f"-{left} / 4" if draw < 0.8 else f"{rng.choice(['min', 'max'])}({left}, {right})"


def test_expressions_are_worth_what_python_says_of_them() -> None:
    rng = random.Random(3)
    texts = [text for text in (written(rng, 4) for _ in range(2_000)) if len(text) <= LONGEST]
    assert len(texts) > 1_500
    for text in texts:
        expression = Expression.of(text)
        for amount in AMOUNTS:
            worth = eval(text, {"amount": amount, "min": min, "max": max})
            assert math.isclose(expression.at(amount), worth, rel_tol=1e-9, abs_tol=1e-6), (text, amount)
        assert expression.lowest <= min(map(expression.at, AMOUNTS)) + 1e-6


def test_one_line_is_exact() -> None:
    fee = Expression.of("4 + 0.02 * amount")
    assert all(fee.at(amount) == 4 + 0.02 * amount for amount in (*AMOUNTS, 0.1, 1 / 3, LARGEST_AMOUNT))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "ends too early"),
        ("amount * amount", "linear"),
        ("amount ** 2", "unexpected"),
        ("1 / amount", "linear"),
        ("1 / (2 - 2)", "divides by 0"),
        ("1e400", "too large"),
        ("1e200 * 1e200", "too large"),
        ("2 3", "'3' is unexpected"),
        ("(1", "')' is missing"),
        ("min(1", "')' is missing"),
        ("min()", "unexpected"),
        ("amount.real", "unexpected"),
        ("__import__('os')", "unexpected"),
        ("nan", "unexpected"),
        ("\N{FULLWIDTH DIGIT ONE}", "unexpected"),
        ("(" * 30 + "1" + ")" * 30, "nested more than"),
        ("1 + " * 60 + "1", "more than 200"),
    ],
)
def test_what_is_not_an_expression_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(ExpressionError, match=said.replace("(", r"\(").replace(")", r"\)")):
        Expression.of(text)
