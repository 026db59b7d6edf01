"""The bands of a policy, and what is explored of them: read, and refused where no row could reach one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from service.decisions import documents
from service.decisions.conditions import Condition, read_condition
from service.errors import PolicyError


@dataclass(frozen=True, slots=True)
class Band:
    """One action and when it is taken.

    Attributes:
        action: Name of the action; "review" means that a person labels the row.
        when: The condition, None in the last band, which takes every row that is left.
    """

    action: str
    when: Condition | None = None


@dataclass(frozen=True, slots=True)
class Explore:
    """Random share of some actions whose true label is sought anyway.

    Attributes:
        share: Probability in [0, 1] that such a row is sent to labelling.
        actions: The actions it applies to.
    """

    share: float = 0.0
    actions: tuple[str, ...] = ()


def read_bands(value: Any) -> tuple[Band, ...]:
    """Read a policy's `bands`.

    Raises:
        PolicyError: There is none, one cannot be used, or one leaves another nothing.
    """
    if not isinstance(value, list | tuple) or not value:
        raise PolicyError(
            "A policy needs a list of at least one band.",
            where="/bands",
            found=value,
            expected='a list such as [{"action": "accept", "when": {"min_precision": 0.95}}, {"action": "review"}]',
            remedy="Begin with one unconditional band, and put conditional ones before it.",
        )
    bands = tuple(_band(item, f"/bands/{i}") for i, item in enumerate(value))
    loosest: dict[str, Condition] = {}
    for i, band in enumerate(bands):
        where = f"/bands/{i}"
        if band.action in {earlier.action for earlier in bands[:i]}:
            raise PolicyError(
                f"The action {band.action!r} appears twice.",
                where=f"{where}/action",
                found=band.action,
                expected="each action in one band",
                remedy="Give this band another action, or merge the two.",
            )
        last = i == len(bands) - 1
        if last != (band.when is None):
            raise PolicyError(
                "The last band must take every row that is left." if last else "No row can reach the bands after this.",
                where=f"{where}/when" if last else where,
                found=band.when.name if band.when else None,
                expected="no condition" if last else "a condition",
                remedy='End with an unconditional band, such as {"action": "review"}, and give every other a "when".',
            )
        if band.when is not None:
            earlier = loosest.get(band.when.kind.family)
            if earlier is not None and band.when.looseness <= earlier.looseness:
                raise _nothing_left(band.when, earlier, where)
            loosest[band.when.kind.family] = band.when
    return bands


def _nothing_left(when: Condition, earlier: Condition, where: str) -> PolicyError:
    """Say that an earlier band of the same family takes every row that this one could."""
    rises = when.looseness == when.value  # such as a recall: the looser condition has the larger number
    limit = earlier.value if when.kind.direction == earlier.kind.direction else 1.0 - earlier.value
    return PolicyError(
        f"This band's {when.name} of {when.value:g} leaves it nothing: an earlier band takes those rows.",
        where=f"{where}/when/{when.name}",
        found=when.value if when.costs is None else when.costs.to_dict(),
        expected=f"{'more' if rises else 'less'} than {limit:g}" + (" as threshold" if when.costs else ""),
        remedy="Order the bands from the strictest condition to the loosest.",
    )


def _band(value: Any, where: str) -> Band:
    fields = documents.fields_of(value, where, {"action", "when"})
    action = documents.name(documents.required(fields, "action", where), f"{where}/action")
    if fields.get("when") is None:
        return Band(action)
    return Band(action, read_condition(fields["when"], f"{where}/when", action))


def read_explore(value: Any, bands: tuple[Band, ...]) -> Explore:
    """Read a policy's `explore`.

    Raises:
        PolicyError: It cannot be used, or uses up a band's flag rate.
    """
    fields = documents.fields_of(value, "/explore", {"share", "actions"})
    share = documents.share(fields.get("share", 0.0), "/explore/share", closed_below=True, closed_above=True)
    actions = fields.get("actions", [])
    known = [band.action for band in bands]
    if not isinstance(actions, list | tuple):
        raise PolicyError(
            "`explore.actions` is a list of actions.",
            where="/explore/actions",
            found=actions,
            expected=known,
            remedy="Write it as a list, of one action too: [accept].",
        )
    if any(action not in known for action in actions):
        raise PolicyError(
            "`explore.actions` names an action that no band has.",
            where="/explore/actions",
            found=actions,
            expected=known,
            remedy="Name actions of the bands.",
        )
    if bool(actions) != (share > 0):
        raise PolicyError(
            "`explore` needs both a share above 0 and the actions it applies to.",
            where="/explore",
            found=dict(fields),
            expected={"share": 0.01, "actions": known[:1]},
            remedy="Give both, or leave `explore` out.",
        )
    explore = Explore(share, tuple(actions))
    for i, band in enumerate(bands):
        explored = explored_below(bands, explore, i)
        if band.when is not None and band.when.metric == "flag_rate" and explored >= band.when.value:
            raise PolicyError(
                f"Exploring alone flags {explored:g} of the rows below this band: the limit leaves it nothing.",
                where=f"/bands/{i}/when/{band.when.name}",
                found=band.when.value,
                expected=f"more than {explored:g}",
                remedy="Explore a smaller share, or allow a larger flag rate.",
            )
    return explore


def explored_below(bands: tuple[Band, ...], explore: Explore, index: int) -> float:
    """Return the share that is explored of rows that fall below a band, at most."""
    below = {band.action for band in bands[index + 1 :]}
    return explore.share if below & set(explore.actions) else 0.0
