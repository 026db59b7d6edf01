"""The trees of a model, beside its graph: what each feature contributes to each score of a row (SHAP values).

The trees are read as their library reads a row of which only some features are known: at a split on an unknown feature,
the row follows both sides, in proportion to the training rows that did (`cover`). A leaf of weight w is then a game of
the features on its path. With o = 1 where the row agrees with all splits of its path on a feature, else 0, and z the
product of the proportions at these splits, the Shapley value of feature j is

    w (oⱼ − zⱼ) ∫₀¹ ∏_{i≠j} (t oᵢ + (1 − t) zᵢ) dt.

The integrand is a polynomial, so Gauss-Legendre quadrature gives it exactly, and every term is positive.

References:
    Lundberg et al. (2020), From local explanations to global understanding with explainable AI for trees, Algorithm 1.
    Owen (1972), Multilinear extensions of games.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from bundle import npz
from bundle.errors import BundleFormatError
from bundle.golden import Golden
from bundle.graph import Graph
from bundle.manifest import TREES_FILE

AT_MOST, BELOW, ABOVE, AMONG, LEAF = range(5)
"""Kinds of nodes: what a split asks of its feature, or a leaf."""
ZERO: Final = float(np.float32(1e-35))
"""Largest size of a number that counts as zero, as in LightGBM (kZeroThreshold)."""
MOST_STEPS: Final = 2**24
"""Maximum splits on the paths to all leaves together."""
_CHUNK: Final = 2**20  # numbers of an array
_LARGEST_CATEGORY: Final = 2.0**31

Floats = NDArray[np.float64]


class _Paths(NamedTuple):
    """Splits on the paths to the leaves, by leaf and feature.

    Attributes:
        node: Node of each split, (E,).
        side: Side on which it leads to the leaf, (E,).
        first: First split of each pair of a leaf and a feature, (P,).
        feature: Feature of each pair, (P,).
        zero: Product of the proportions of each pair, (P,).
        parts: Leaves with the same number d of features: rows of `weights` (L,), and their pairs (L, d).
    """

    node: NDArray[np.intp]
    side: NDArray[np.bool_]
    first: NDArray[np.intp]
    feature: NDArray[np.int32]
    zero: Floats
    parts: tuple[tuple[NDArray[np.intp], NDArray[np.intp]], ...]


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees whose leaves add up to scores: N nodes, L leaves, S scores. Every node comes after its parent.

    Attributes:
        kind: uint8 (N,): `AT_MOST`, `BELOW`, `ABOVE`, `AMONG` or `LEAF`.
        feature: int32 (N,): feature of a split.
        value: float64 (N,): threshold of a split; number of the set for `AMONG`; row of `weights` for a leaf.
        yes: int32 (N,): node that follows a split with the answer yes.
        no: int32 (N,): node that follows one with the answer no.
        missing: bool (N,): answer for a missing value.
        cover: float64 (N,), 0 or above: weight of the training rows that reached the node.
        weights: float64 (L, S): what each leaf adds to the scores.
        base: float64 (S,): scores of no tree.
        categories: int64 (C,): categories of all sets, one set after the other.
        ends: int64: end of each set in `categories`.
        zeros: int32: features whose zeros are missing values.
        rules: float64 (2,): the smallest number that is read as a category, and the number that stands for a missing
            value, NaN for none.
    """

    kind: NDArray[np.uint8]
    feature: NDArray[np.int32]
    value: Floats
    yes: NDArray[np.int32]
    no: NDArray[np.int32]
    missing: NDArray[np.bool_]
    cover: Floats
    weights: Floats
    base: Floats
    categories: NDArray[np.int64]
    ends: NDArray[np.int64]
    zeros: NDArray[np.int32]
    rules: Floats

    def dump(self) -> bytes:
        """Return the trees as the bytes of `trees.npz`."""
        return npz.dump({name: getattr(self, name) for name in _DTYPES})

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Parse the bytes of `trees.npz`; raises BundleFormatError."""
        arrays = npz.load(data, frozenset(_DTYPES), file=TREES_FILE)
        for name, dtype in _DTYPES.items():
            if arrays[name].dtype != np.dtype(dtype).newbyteorder("<"):
                _refuse(f"{name} is of type {arrays[name].dtype}", str(np.dtype(dtype)))
        trees = cls(**arrays)
        trees._check_shape()
        return trees

    def check(self, graph: Graph | None, golden: Golden, classes: int) -> None:
        """Raise BundleFormatError unless these trees give the golden logits."""
        if graph is None or len(graph.inputs) != 1 or graph.output.form not in ("margin", "logits"):
            _refuse("the trees belong to no graph", "a graph with one input that gives log-odds")
        rows = rows_of(graph, golden.inputs)
        if max(self.feature.max(initial=0), self.zeros.max(initial=0)) >= rows.shape[1]:
            _refuse("a tree splits on a feature that rows do not have", f"features 0 to {rows.shape[1] - 1}")
        try:
            logits = graph.output.logits(np.array([self.scores(row) for row in rows]), classes)
        except ValueError as error:
            raise BundleFormatError(f"the trees give other scores: {error}", file=TREES_FILE) from error
        if (differs := golden.difference(logits)) is not None:
            _refuse(f"the trees differ from the graph: {differs.message}, {differs.found}", str(differs.expected))

    def scores(self, row: Floats) -> Floats:
        """Return the scores (S,) of a row (F,), as the graph takes it."""
        answers = self._answers(row)
        at = np.flatnonzero(self._parent < 0)
        while (inner := self.kind[at] != LEAF).any():
            at = np.where(inner, np.where(answers[at], self.yes[at], self.no[at]), at)
        found: Floats = self.base + self.weights[self.value[at].astype(np.intp)].sum(axis=0)
        return found

    @cached_property
    def expected(self) -> Floats:
        """Scores (S,) of a row of which nothing is known."""
        reached = np.ones(len(self.weights))
        for leaves, pairs in self._paths.parts:
            reached[leaves] = self._paths.zero[pairs].prod(axis=1)
        found: Floats = self.base + reached @ self.weights
        return found

    def contributions(self, row: Floats) -> Floats:
        """Return what each feature contributes to each score, (F, S): with `expected`, they add up to the scores.

        Args:
            row: One row (F,), as the graph takes it.
        """
        paths, found = self._paths, np.zeros((len(row), len(self.base)))
        if not len(paths.node):
            return found
        one = np.logical_and.reduceat(self._answers(row)[paths.node] == paths.side, paths.first).astype(np.float64)
        for leaves, pairs in self._pieces():
            o, z = one[pairs], paths.zero[pairs]
            points, weights = np.polynomial.legendre.leggauss((pairs.shape[1] + 1) // 2)
            t = (points[:, None, None] + 1) / 2
            factors = t * o + (1 - t) * z
            others = np.ones_like(factors)  # product of the factors before, times that of the factors after
            np.cumprod(factors[..., :-1], axis=2, out=others[..., 1:])
            others[..., :-1] *= np.cumprod(factors[..., :0:-1], axis=2)[..., ::-1]
            shares = (o - z) * np.tensordot(weights / 2, others, axes=1)
            np.add.at(found, paths.feature[pairs], shares[..., None] * self.weights[leaves][:, None, :])
        return found

    def _pieces(self) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        for leaves, pairs in self._paths.parts:
            width = pairs.shape[1]
            step = max(_CHUNK // (width * ((width + 1) // 2 + self.weights.shape[1])), 1)
            for start in range(0, len(leaves), step):
                yield leaves[start : start + step], pairs[start : start + step]

    def _answers(self, row: Floats) -> NDArray[np.bool_]:
        """Return the answer of each split, (N,); any for leaves."""
        row = row.astype(np.float64)
        lowest, absent = self.rules
        row[row == absent] = np.nan
        row[self.zeros[np.abs(row[self.zeros]) <= ZERO]] = np.nan
        at, value = row[self.feature], self.value
        comparisons = (at <= value, at < value, at > value)
        answers: NDArray[np.bool_] = np.select([self.kind == each for each in (AT_MOST, BELOW, ABOVE)], comparisons)
        if len(self.ends):
            numbers = np.trunc(at[self._asked])
            known = (at[self._asked] >= lowest) & (np.abs(numbers) < _LARGEST_CATEGORY)
            codes = np.where(known, numbers, np.nan)
            of = np.repeat(np.arange(len(self.ends)), np.diff(self.ends, prepend=0))
            inside = np.bincount(of[codes[of] == self.categories], minlength=len(self.ends)) > 0
            among = self.kind == AMONG
            answers[among] = inside[value[among].astype(np.intp)]
        return np.where(np.isnan(at), self.missing, answers)

    @cached_property
    def _asked(self) -> NDArray[np.intp]:
        """A split that asks for each set, (sets,)."""
        among = np.flatnonzero(self.kind == AMONG)
        asked = np.zeros(len(self.ends), np.intp)
        asked[self.value[among].astype(np.intp)] = among
        return asked

    @cached_property
    def _parent(self) -> NDArray[np.int64]:
        """Parent of each node, (N,); −1 for a root."""
        parent = np.full(len(self.kind), -1)
        inner = np.flatnonzero(self.kind != LEAF)
        parent[self.yes[inner]] = inner
        parent[self.no[inner]] = inner
        return parent

    @cached_property
    def steps(self) -> int:
        """Splits on the paths to all leaves together, counted up to `MOST_STEPS`."""
        at, steps = np.flatnonzero(self.kind == LEAF).astype(np.int64), 0
        while len(at := self._parent[at]) and len(at := at[at >= 0]) and steps <= MOST_STEPS:
            steps += len(at)
        return steps

    @cached_property
    def _paths(self) -> _Paths:
        nodes, sides, leaves, ratios = [], [], [], []
        below = np.flatnonzero(self.kind == LEAF)
        leaf = self.value[below].astype(np.intp)
        while len(below):
            at = self._parent[below]
            below, at, leaf = below[at >= 0], at[at >= 0], leaf[at >= 0]
            whole = self.cover[at]
            # Nothing is known of a split that no training row reached; any proportions add up.
            ratios.append(np.divide(self.cover[below], whole, out=np.full(len(at), 0.5), where=whole > 0))
            nodes.append(at)
            sides.append(self.yes[at] == below)
            leaves.append(leaf)
            below = at
        node, side, of, ratio = (np.concatenate(parts) for parts in (nodes, sides, leaves, ratios))
        feature = self.feature[node]
        order = np.lexsort((feature, of))
        node, side, of, ratio, feature = (each[order] for each in (node, side, of, ratio, feature))
        new = np.ones(len(node), np.bool_)
        new[1:] = (of[1:] != of[:-1]) | (feature[1:] != feature[:-1])
        first = np.flatnonzero(new)
        zero = np.multiply.reduceat(ratio, first) if len(first) else np.zeros(0)
        width = np.bincount(of[first], minlength=len(self.weights))
        start = np.concatenate([[0], np.cumsum(width)[:-1]])
        parts = []
        for count in np.unique(width[width > 0]).tolist():
            own = np.flatnonzero(width == count)
            parts.append((own, start[own][:, None] + np.arange(count)))
        return _Paths(node, side, first, feature[first], zero, tuple(parts))

    def _check_shape(self) -> None:
        count, inner = len(self.kind), self.kind != LEAF
        at = np.arange(count)
        per_node = (self.kind, self.feature, self.value, self.yes, self.no, self.missing, self.cover)
        if any(each.shape != (count,) for each in per_node) or self.weights.ndim != 2 or not count:
            _refuse("the trees have arrays of different lengths", "one entry for each node")
        if self.base.shape != self.weights.shape[1:] or self.rules.shape != (2,):
            _refuse("the base of the trees does not fit their leaves", f"shape {self.weights.shape[1:]}")
        numbers = (self.value[inner], self.cover, self.weights, self.base)
        if not all(np.isfinite(each).all() for each in numbers) or (self.cover < 0).any() or (self.kind > LEAF).any():
            _refuse("the trees have a number that is not valid", "finite numbers")
        children = np.concatenate([self.yes[inner], self.no[inner]])
        forward = (children > np.concatenate([at[inner], at[inner]])) & (children < count)
        if not forward.all() or (np.bincount(children, minlength=1) > 1).any() or (self.feature[inner] < 0).any():
            _refuse("a tree is damaged: it leads outside itself", "nodes after their parents")
        ends = np.concatenate([[0], self.ends])
        if (np.diff(ends) < 0).any() or ends[-1] != len(self.categories) or (self.zeros < 0).any():
            _refuse("the sets of categories are damaged", "increasing ends")
        for which, limit in ((self.kind == LEAF, len(self.weights)), (self.kind == AMONG, len(self.ends))):
            place = self.value[which]
            if not ((place >= 0) & (place < limit) & (place == np.trunc(place))).all():
                _refuse("a tree names a leaf or a set that is not there", f"numbers from 0 to {limit - 1}")
        if len(np.unique(self.value[~inner])) != len(self.weights) or (~inner).sum() != len(self.weights):
            _refuse("the trees have other leaves than weights", f"{len(self.weights)} leaves")
        if self.steps > MOST_STEPS:
            _refuse("the trees are too deep", f"at most {MOST_STEPS} splits on the paths to all leaves")


def rows_of(graph: Graph, inputs: NDArray[Any]) -> Floats:
    """Return examples (N, …) as rows (N, F) of the only input of a graph."""
    (fed,) = graph.feeds(inputs).values()
    return fed.reshape(len(fed), -1).astype(np.float64)


_DTYPES: Final = {
    "kind": np.uint8,
    "feature": np.int32,
    "value": np.float64,
    "yes": np.int32,
    "no": np.int32,
    "missing": np.bool_,
    "cover": np.float64,
    "weights": np.float64,
    "base": np.float64,
    "categories": np.int64,
    "ends": np.int64,
    "zeros": np.int32,
    "rules": np.float64,
}


def _refuse(message: str, expected: str) -> NoReturn:
    raise BundleFormatError(message, file=TREES_FILE, expected=expected)
