"""Elements of inline SVG. Text is escaped; style attributes are avoided: the content security policy forbids them."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

Value = str | float


def element(name: str, *children: Markup | str, **attributes: Value) -> Markup:
    """Return one element.

    Args:
        name: Its tag.
        *children: Markup as it is, text escaped.
        **attributes: A trailing "_" goes, "_" inside becomes "-"; numbers are written with two decimals at most.

    Example:
        >>> element("text", "<b>", x=1.0, text_anchor="end", class_="tick")
        Markup('<text x="1" text-anchor="end" class="tick">&lt;b&gt;</text>')
    """
    written = "".join(f' {_name(key)}="{escape(_text(value))}"' for key, value in attributes.items())
    return Markup("<{}{}>{}</{}>").format(name, Markup(written), joined(children), name)  # noqa: S704 — all escaped above


def thousands(value: int) -> str:
    r"""Return a whole number with its thousands apart.

    >>> thousands(12345)
    '12\u202f345'
    """
    return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def joined(parts: Iterable[Markup | str]) -> Markup:
    """Return parts one behind the other, text escaped."""
    return Markup("").join(parts)


def figure(key: str, size: tuple[int, int], title: str, description: str, *children: Markup) -> Markup:
    """Return a whole chart.

    Args:
        key: Makes the ids of this chart unique in its page.
        size: Width and height of the coordinates; the page scales them.
        title: What the chart is, for screen readers.
        description: What it shows, in a sentence, for screen readers.
        *children: What is drawn.
    """
    return element(
        "svg",
        element("title", title, id=f"{key}-title"),
        element("desc", description, id=f"{key}-description"),
        *children,
        viewBox=f"0 0 {size[0]} {size[1]}",
        role="img",
        aria_labelledby=f"{key}-title {key}-description",
        class_="chart",
    )


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """Return a straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def bar(x: float, y: float, width: float, height: float, class_: str, hint: str | None = None) -> Markup:
    """Return a rectangle; `hint` is shown where a pointer rests on it."""
    return element("rect", *hinted(hint), x=x, y=y, width=max(width, 0.0), height=max(height, 0.0), class_=class_)


def text(x: float, y: float, content: str, class_: str, anchor: str = "start") -> Markup:
    """Return a line of text."""
    return element("text", content, x=x, y=y, class_=class_, text_anchor=anchor)


def hinted(hint: str | None) -> tuple[Markup, ...]:
    """Return the tooltip of a shape."""
    return () if hint is None else (element("title", hint),)


def _name(key: str) -> str:
    return key if key == "viewBox" else key.rstrip("_").replace("_", "-")


def _text(value: Value) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
