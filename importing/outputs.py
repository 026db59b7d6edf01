"""Find the output that scores the classes, by its shape and by the values that it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from bundle import GraphOutput
from bundle.graph import ROUNDING, Form
from importing.errors import AmbiguousModelError, UnsupportedModelError
from importing.model import Port

_SUM_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Candidate:
    """An output that may score the classes.

    Attributes:
        port: The output.
        form: What it seems to hold.
        why: The reason, for people.
        doubtful: Whether another form is as likely.
    """

    port: Port
    form: Form
    why: str
    doubtful: bool = False


def choose_output(
    ports: Sequence[Port], values: Sequence[Any], classes: Sequence[str], wanted: str | None
) -> tuple[GraphOutput, str]:
    """Return the output that scores the classes, and how it was found.

    Args:
        ports: Outputs of the graph.
        values: What each gave for the same N rows.
        classes: Names of the K classes in the order of the model's columns, as the rows or the model name them.
        wanted: `NAME` or `NAME:FORM` of an output, which ends every doubt; None to find it.

    Raises:
        AmbiguousModelError: Several outputs may score the classes, or the values of one can be logits as well as
            probabilities.
        UnsupportedModelError: No output does, or not the one that was named.
    """
    name, form = _wanted(wanted, ports)
    if form and form not in get_args(Form):
        raise UnsupportedModelError(f"unknown form {form!r} of an output", expected=", ".join(get_args(Form)))
    found = [
        candidate
        for port, value in zip(ports, values, strict=True)
        if name in ("", port.name) and (candidate := _candidate(port, value, len(classes), named=bool(name)))
    ]
    if not found:
        raise UnsupportedModelError(
            f"no output scores {len(classes)} classes",
            found="; ".join(f"{port} gave {_shape(value)}" for port, value in zip(ports, values, strict=True)),
            expected=f"one row of {len(classes)} scores or probabilities, or one number, per row",
            remedy="Check that the label column has the classes that the model was trained for. If one of them has no "
            "rows, name all classes in the order of the scores: --labels 0=a,1=b,2=c.",
        )
    if len(found) > 1:
        found = _same(found, dict(zip((port.name for port in ports), values, strict=True)))
    if len(found) > 1:
        raise AmbiguousModelError(
            "several outputs may score the classes",
            found="; ".join(f"{each.port.name} ({each.why})" for each in found),
            expected=f"one of them: --output {found[0].port.name}",
        )
    chosen = found[0]
    if chosen.doubtful and not form:
        raise AmbiguousModelError(
            f"output {chosen.port.name!r} gives each class a number from 0 to 1, and they do not add up to 1",
            found=chosen.why,
            expected=f"--output {chosen.port.name}:probabilities (independent sigmoids, divided by their sum) or "
            f"--output {chosen.port.name}:logits",
        )
    keys: tuple[int | str, ...] = ()
    if chosen.form == "maps":
        maps = values[[port.name for port in ports].index(chosen.port.name)]
        keys = _keys(maps[0], classes, chosen.port)
    # Of many classes, all raised to a floor, the sum must not move by more than rounding does.
    output = GraphOutput(name=chosen.port.name, form=form or chosen.form, keys=keys, smallest=2e-7 / len(classes))
    return output, f"{described(output)} ({'as asked' if form else chosen.why}){clipped(output)}"


def _wanted(text: str | None, ports: Sequence[Port]) -> tuple[str, str]:
    """Return name and form of a wanted output, empty where it has none; raises UnsupportedModelError."""
    name, _, form = (text or "").partition(":")
    if name and name not in {port.name for port in ports}:
        raise UnsupportedModelError(
            f"the model has no output {name!r}", expected=", ".join(port.name for port in ports)
        )
    return name, form


def described(output: GraphOutput) -> str:
    """Return an output in words."""
    return f"output {output.name}: {output.form}"


def clipped(output: GraphOutput) -> str:
    """Return what exact zeros count as, as the end of a sentence; empty for forms without probabilities."""
    return "" if output.form in ("logits", "margin") else f"; a probability counts as at least {output.smallest:.3g}"


def choose_sigmoids(
    ports: Sequence[Port], values: Sequence[Any], columns: Sequence[int], count: int, wanted: str | None
) -> tuple[GraphOutput, str]:
    """Return the output that scores each label of a multi-label model on its own, and how it was found.

    Args:
        ports: Outputs of the graph.
        values: What each gave for the same N rows.
        columns: Column of each label.
        count: Number of columns.
        wanted: `NAME` or `NAME:FORM` of an output; None to find it.

    Raises:
        AmbiguousModelError: Several outputs may score the labels, or the rows of one add up to 1.
        UnsupportedModelError: No output does, or not the one that was named.
    """
    name, form = _wanted(wanted, ports)
    if form not in ("", "positive", "margin"):
        raise UnsupportedModelError(
            f"form {form!r} does not score labels independently",
            expected="positive (a probability per label) or margin (log-odds per label)",
        )
    found = {}
    for port, value in zip(ports, values, strict=True):
        array = np.empty(0) if isinstance(value, list) else np.asarray(value)
        if name in ("", port.name) and array.dtype.kind == "f" and array.size and _matrix(array).shape[1] == count:
            found[port.name] = _matrix(array)
    if not found:
        raise UnsupportedModelError(
            f"no output scores {count} labels",
            found="; ".join(f"{port} gave {_shape(value)}" for port, value in zip(ports, values, strict=True)),
            expected=f"one row of {count} probabilities or log-odds per row",
            remedy="Name as many label columns as the model has scores, in their order.",
        )
    chosen, array = next(iter(found.items()))
    if len(found) > 1:
        raise AmbiguousModelError(
            "several outputs may score the labels", found=", ".join(found), expected=f"one of them: --output {chosen}"
        )
    inside = bool(((array >= -ROUNDING) & (array <= 1 + ROUNDING)).all())
    if not form and inside and (np.abs(array.sum(axis=1) - 1) < _SUM_TOLERANCE).all():
        raise AmbiguousModelError(
            f"the rows of output {chosen!r} add up to 1, as those of a softmax do",
            found="probabilities of classes that exclude each other",
            expected="independent sigmoids",
            remedy="Import one class per row with --label. If the labels are independent all the same: "
            f"--output {chosen}:positive.",
        )
    kind: Form = form or ("positive" if inside else "margin")  # type: ignore[assignment]  # checked above
    why = "as asked" if form else "all values lie in 0 … 1" if inside else "log-odds"
    result = GraphOutput(name=chosen, form=kind, columns=tuple(columns))
    return result, f"{described(result)} of each label ({why}){clipped(result)}"


def _candidate(port: Port, value: Any, classes: int, *, named: bool) -> Candidate | None:
    if isinstance(value, list):
        if value and isinstance(value[0], dict) and len(value[0]) == classes:
            return Candidate(port, "maps", f"a map of {classes} probabilities per row")
        return None
    array = np.asarray(value)
    if array.dtype.kind != "f" or not array.ndim:
        return None  # labels, and texts
    array = _matrix(array)
    inside = bool(((array >= -ROUNDING) & (array <= 1 + ROUNDING)).all())
    if array.shape[1] == 1 and classes == 2:
        if not named and np.isin(array, (0.0, 1.0)).all():
            return None  # decisions, not scores
        return (
            Candidate(port, "positive", "all values lie in 0 … 1")
            if inside
            else Candidate(port, "margin", f"values from {array.min():.3g} to {array.max():.3g}")
        )
    if array.shape[1] != classes:
        return None
    sums = array.sum(axis=1)
    if inside and (np.abs(sums - 1) < _SUM_TOLERANCE).all():
        return Candidate(port, "probabilities", "rows add up to 1")
    if inside:
        return Candidate(port, "logits", f"rows add up to {sums.min():.3g} … {sums.max():.3g}", doubtful=True)
    return Candidate(port, "logits", f"values from {array.min():.3g} to {array.max():.3g}")


def _same(found: list[Candidate], values: dict[str, Any]) -> list[Candidate]:
    """Return the logits alone where the other candidates are the softmax of them."""
    logits = [each for each in found if each.form == "logits"]
    rest = [each for each in found if each.form == "probabilities"]
    if len(logits) != 1 or len(rest) != len(found) - 1:
        return found
    scores = _matrix(values[logits[0].port.name])
    same = all(
        np.abs(softmax(scores, axis=1) - _matrix(values[each.port.name])).max() < _SUM_TOLERANCE for each in rest
    )
    return [replace(logits[0], doubtful=False)] if same else found


def _matrix(value: Any) -> npt.NDArray[np.float64]:
    """Return an output as one row of numbers per row, float64 (N, …)."""
    array = np.asarray(value, np.float64)
    return array.reshape(len(array), -1)


def _keys(first: dict[Any, float], classes: Sequence[str], port: Port) -> tuple[int | str, ...]:
    named = {str(key): key for key in first}
    places = tuple(map(str, range(len(classes))))
    if set(named) == set(places) and not set(places) & set(classes):
        return tuple(named[place] for place in places)  # the model knows its classes by number alone
    if not set(classes) <= set(named):
        named = {name.strip(): key for name, key in named.items()}  # as files give them
    if set(named) != set(classes):
        raise UnsupportedModelError(
            f"the maps of output {port.name!r} have other keys than the labels",
            found=", ".join(sorted(named)),
            expected=", ".join(classes),
            remedy="Name the classes in the label column as the model does.",
        )
    return tuple(named[name] for name in classes)


def _shape(value: Any) -> str:
    return f"a list of {len(value)}" if isinstance(value, list) else f"{np.asarray(value).dtype} {np.shape(value)}"
