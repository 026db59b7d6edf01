"""The stability index of columns, beside the index that they would have without drift."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from service.dashboard.charts import svg

_WIDTH, _ROW, _LEFT, _TOP = 880, 26, 230.0, 22.0
_REACH = 610.0
_LONGEST = 30


def indices(key: str, title: str, columns: Sequence[tuple[str, float, float, bool]]) -> Markup:
    """Draw a bar for each column.

    Args:
        key: Makes its ids unique in the page.
        title: What it is of.
        columns: Name, index, mean index without drift, and whether it has raised the alarm.
    """
    most = max([0.25, *(index for _, index, _, _ in columns)]) * 1.05
    height = int(_TOP + _ROW * max(len(columns), 1) + 6)
    parts = []
    for at, said in ((0.1, "0.1"), (0.25, "0.25")):
        x = _LEFT + _REACH * at / most
        parts += [svg.line(x, _TOP - 4, x, height - 6, "ideal"), svg.text(x, _TOP - 9, said, "tick", "middle")]
    for place, (name, index, without, alarm) in enumerate(columns):
        top = _TOP + _ROW * place
        shown = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
        hint = f"{name}: {index:.3f}, without drift {without:.3f}"
        x = _LEFT + _REACH * min(without / most, 1.0)
        parts += [
            svg.text(_LEFT - 8, top + 15, shown, "label", "end"),
            svg.bar(_LEFT, top + 3, _REACH * index / most, _ROW - 8, "wrong" if alarm else "right", hint),
            svg.line(x, top + 1, x, top + _ROW - 3, "cut"),
        ]
    alarms = sum(alarm for *_, alarm in columns)
    return svg.figure(key, (_WIDTH, height), title, f"{len(columns)} columns, {alarms} with an alarm.", *parts)
