"""`candor policy suggest`: a first policy for one class, from the reference rows of a bundle."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from service.commands.output import console, print_json, replace_file, reporting

if TYPE_CHECKING:  # numpy and scipy take long to import
    from service.decisions.suggest import Plateau, Suggestion


class Per(StrEnum):
    """What a promise counts."""

    row = "row"
    group = "group"


def suggest(
    bundle: Annotated[
        str, typer.Argument(help="Folder of a bundle, or a model, whose newest bundle in CANDOR_BUNDLES is read.")
    ],
    positive: Annotated[str, typer.Option(help="Label that the policy acts on, such as fraud.")],
    delta: Annotated[float, typer.Option(help="Probability that any promise of the policy is false.")] = 0.05,
    review_share: Annotated[
        float | None, typer.Option(help="Share of all rows that people can look at; default: 0.02.", show_default=False)
    ] = None,
    reviews_per_day: Annotated[
        int | None,
        typer.Option(help="Rows a day that people can look at; requires --rows-per-day, and replaces --review-share."),
    ] = None,
    rows_per_day: Annotated[int | None, typer.Option(help="Rows that the model predicts in a busy day.")] = None,
    per: Annotated[Per, typer.Option(help="What promises count: each row, or each group once.")] = Per.row,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write; an existing file is replaced. Default: standard output.", dir_okay=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON, for scripts.")] = False,
) -> None:
    """Write a first policy whose promises these rows can probably certify, and say what more labels would buy.

    The promises are chosen from fit rows. No label that certifies is read: a suggestion uses no look.
    """
    import numpy as np

    from bundle.reader import read_manifest
    from service.commands.row_files import of_bundle
    from service.decisions.policy import check_labels, parse_policy
    from service.decisions.suggest import suggest as suggest_policy

    with reporting():
        review_share = _share(review_share, reviews_per_day, rows_per_day)
        folder = _folder(bundle)
        labels, parts_of = of_bundle(folder)
        scored = parse_policy({"id": "suggested", "positive": positive, "bands": [{"action": "review"}]})
        check_labels(scored, labels)
        parts = parts_of(scored)
        found = suggest_policy(
            parts.fit,
            positive=positive,
            certify_rows=len(np.unique(parts.certify.group)),
            certify=parts.certify,
            labelled_rows=len(parts.fit) + len(parts.certify) + len(parts.tried),
            delta=delta,
            labels=read_manifest(folder).sharing,
            review_share=review_share,
            rows_per_day=rows_per_day,
            per=per.value,
        )
        grouped = len(np.unique(parts.fit.group)) < len(parts.fit)
        said = list(explained(found, "groups of " if grouped else ""))
        text = written(found, said)
        if out is not None:
            replace_file(out, text.encode())
    if as_json:
        print_json({**found.to_dict(), "explanation": said})
    elif out is None:
        typer.echo(text, nl=False)
    else:
        for line in said:
            console.print(escape(line), soft_wrap=True, highlight=False)
        console.print(f"{escape(str(out))} is written. Certify it, which uses a look at these rows:", soft_wrap=True)
        following = shlex.join(["candor", "policy", "solve", str(out), "--bundle", str(folder)])
        console.print(escape(following), soft_wrap=True, highlight=False)


def _share(share: float | None, reviews: int | None, day: int | None) -> float:
    """Return the share of all rows that people can look at."""
    from service.errors import ConfigurationError

    if reviews is None and day is None:
        return 0.02 if share is None else share
    if share is not None or reviews is None or day is None:
        raise ConfigurationError(
            "--reviews-per-day and --rows-per-day belong together and replace --review-share.",
            where="--reviews-per-day" if reviews is None else "--rows-per-day" if day is None else "--review-share",
            expected="--reviews-per-day and --rows-per-day together, without --review-share",
            remedy="For example: --reviews-per-day 500 --rows-per-day 20000",
        )
    if not 0 < reviews < day:
        raise ConfigurationError(
            "The reviews per day must be fewer than the rows per day.",
            where="--reviews-per-day",
            found=reviews,
            expected=f"1 to {day - 1}, fewer than --rows-per-day",
        )
    return reviews / day


def _folder(text: str) -> Path:
    from bundle.locations import find
    from service.commands.local import settings_of
    from service.errors import UnknownModelError

    if Path(text).is_dir():
        return Path(text)
    root = settings_of({}).bundle_folder
    found = find(root)
    if newest := [location.path for location in found if location.model == text]:
        return newest[-1]
    raise UnknownModelError(
        f"{text} is neither a folder nor a model of {root}.",
        where="BUNDLE",
        found=text,
        expected=", ".join(sorted({location.model for location in found})) or "a folder",
        remedy="Set CANDOR_BUNDLES, or give the folder of a bundle.",
    )


def written(found: Suggestion, comments: list[str]) -> str:
    """Return a suggestion as YAML, with comments at its head."""
    policy = found.policy
    document = policy.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    lines = [f"# {comment}" for comment in comments]
    for name, value in document.items():
        if name == "bands":
            lines += ["bands:", *(f"  - {_flow(band)}" for band in value)]
        elif value != {}:
            lines.append(_flow({name: value})[1:-1])
    return "\n".join(lines) + "\n"


def explained(found: Suggestion, unit: str) -> Iterator[str]:
    """Yield what a suggestion rests on, and what more labels would buy, a sentence or two a line.

    Args:
        found: The suggestion.
        unit: `groups of ` where rows of one group count as one; else empty.
    """
    from service.decisions.suggest import FEW, POWER

    label = repr(found.policy.positive)
    yield (
        f"Suggested from {found.fit_rows:,} {unit}fit rows, {found.positives:,} of them {label} "
        f"({found.positives / found.fit_rows:.2%}). No label of a certify row was read."
    )
    if found.positives < FEW:
        yield f"Fewer than {FEW} rows of {label} say little about any threshold: all estimates below are rough."
    tried = [rung.min_precision for rung in found.rungs]
    if found.promised is not None:
        chance = next(rung.chance for rung in found.rungs if rung.min_precision == found.promised)
        yield (
            f"block: {found.promised:g} precision, with an estimated chance of {chance:.0%} that the "
            f"{found.certify_rows:,} {unit}certify rows certify this policy. It takes at most "
            f"{found.blocked:.2%} of the rows."
        )
    elif tried:
        yield (
            f"No block: no precision from {tried[-1]:g} to {tried[0]:g} has an estimated chance of {POWER:.0%} to be "
            f"certified by the {found.certify_rows:,} {unit}certify rows."
        )
    else:
        yield f"No block: nearly all rows are {label}, so no precision promises more than their share."
    yield _review(found)
    yield from _unreached(found)


def _review(found: Suggestion) -> str:
    condition = next(band.condition for band in found.policy.bands if band.action == "review")
    if condition is None and found.plateau is not None:
        return f"review: all other rows. {_plateau(found.plateau)}"
    if condition is None:
        return "review: all other rows; the review share leaves no room for a threshold."
    label, shares = repr(found.policy.positive), ""
    if found.precision is not None and found.recall is not None:
        shares = f" ({found.precision:.0%} of these are {label}), and {found.recall:.0%} of the {label}"
    together = "It takes" if found.promised is None else "block and review together take"
    volume = f"{together} at most {found.flagged:.2%} of the fit rows{shares}."
    if condition.metric is None:
        steps = "" if found.plateau is None else f" {_plateau(found.plateau)}"
        return f"review: a fixed threshold; these rows will probably not certify a flag rate. {volume}{steps}"
    if condition.per_day:
        return (
            f"review: a promise of {condition.value:,.0f} of {found.policy.rows_per_day:,} rows a day, which counts "
            "blocked, reviewed and explored rows. The certificate holds the share, not the count of a busier day. "
            f"{volume}"
        )
    return f"review: a promised flag rate, which counts blocked, reviewed and explored rows. {volume}"


def _plateau(plateau: Plateau) -> str:
    kept = "takes" if plateau.taken else "would take"
    return (
        f"{plateau.share:.1%} of the fit rows have one probability, {plateau.probability:.3g}: a plateau, as isotonic "
        f"and histogram calibrators make them. A fixed threshold takes all of them or none, and {kept} more rows than "
        "the review share. A calibrator without plateaus, such as beta or platt, tells these rows apart. So does a "
        "promised flag rate, which requires more labels."
    )


def _unreached(found: Suggestion) -> Iterator[str]:
    """Yield what the stricter precisions need."""
    from service.decisions.suggest import MOST

    beyond = [rung for rung in found.rungs if found.promised is None or rung.min_precision > found.promised]
    never = [f"{rung.min_precision:g}" for rung in beyond if rung.more is None]
    if never:
        yield (
            f"{', '.join(never)} precision: {MOST} times these labels would probably not certify it. It needs a "
            "better model, or far more labels."
        )
    for rung in beyond:
        if rung.more is not None:
            yield f"{rung.min_precision:g} precision needs some {_some(rung.more)} more labelled rows at this rate."


def _some(number: int) -> str:
    """Return a number with two significant digits."""
    return f"{round(number, 2 - len(str(number))):,}"


def _flow(value: Any) -> str:
    """Return a mapping on one line of YAML."""
    import yaml

    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6)
    return text.strip()
