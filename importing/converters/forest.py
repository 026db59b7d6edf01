"""Decision trees as an ONNX graph that decides as the library did: in its precision, on NaN, zeros and categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from bundle import Graph, GraphInput, GraphOutput, Trees
from bundle.graph import Form
from bundle.trees import ABOVE, AMONG, AT_MOST, BELOW, LEAF, MOST_STEPS, ZERO
from importing.converters.category_sets import CategorySet, look_up
from importing.libraries import library

Mode = Literal["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "LEAF"]

INPUT, OUTPUT = "features", "scores"
OPSETS = {"": 19, "ai.onnx.ml": 3}
IR_VERSION = 9
_KINDS: Final = {"BRANCH_LEQ": AT_MOST, "BRANCH_LT": BELOW, "BRANCH_GT": ABOVE, "LEAF": LEAF}


@dataclass
class Forest:
    """Trees, node by node. The first node of each tree is its root.

    Attributes:
        dtype: Precision of the library: of thresholds, of leaves and of the features that they are compared with.
    """

    dtype: type[np.float32] | type[np.float64]
    _nodes: dict[str, list[Any]] = field(
        default_factory=lambda: {name: [] for name in ("tree", "node", "feature", "mode", "true", "false", "missing")}
    )
    _values: list[float] = field(default_factory=list)
    _covers: list[float | None] = field(default_factory=list)
    _leaves: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in ("tree", "node", "target")})
    _weights: list[float] = field(default_factory=list)
    _sets: dict[CategorySet, int] = field(default_factory=dict)

    def split(
        self,
        tree: int,
        node: int,
        feature: int,
        mode: Mode,
        value: float,
        *,
        true: int,
        false: int,
        missing: bool,
        cover: float | None = None,
    ) -> None:
        """Add a split: `true` and `false` are the next nodes, `missing` whether NaN goes to `true`.

        `cover` is the weight of the training rows that reached it; None if it is not known.
        """
        row = (tree, node, feature, mode, true, false, int(missing))
        for column, entry in zip(self._nodes.values(), row, strict=True):
            column.append(entry)
        # scikit-learn's split between NaN and all numbers is at infinity; a stored threshold is finite.
        self._values.append(min(value, float(np.finfo(self.dtype).max)))
        self._covers.append(cover)

    def among(
        self,
        tree: int,
        node: int,
        feature: int,
        values: Sequence[int],
        *,
        true: int,
        false: int,
        missing: bool,
        cover: float | None = None,
    ) -> None:
        """Add a split that asks whether a category is among `values`; a missing one is if `missing`."""
        wanted = CategorySet(feature, tuple(values), missing)
        number = self._sets.setdefault(wanted, len(self._sets))
        self.split(tree, node, -1 - number, "BRANCH_GT", 0.5, true=true, false=false, missing=False, cover=cover)

    @property
    def sets(self) -> tuple[CategorySet, ...]:
        """The sets of categories that splits ask for; split number -1 - n asks for set n."""
        return tuple(self._sets)

    def leaf(
        self, tree: int, node: int, weights: Sequence[float], first: int = 0, *, cover: float | None = None
    ) -> None:
        """Add a leaf that adds `weights` to the scores from column `first` on."""
        self.split(tree, node, 0, "LEAF", 0.0, true=0, false=0, missing=False, cover=cover)
        for target, weight in enumerate(weights, start=first):
            for column, entry in zip(self._leaves.values(), (tree, node, target), strict=True):
                column.append(entry)
            self._weights.append(weight)

    def operator(self, rows: str, scores: str, base: Sequence[float], places: Sequence[int]) -> Any:
        """Return the ONNX node: the sum of the leaves and of `base`.

        Args:
            rows: Name of the features.
            scores: Name of the scores.
            base: Scores of a forest without trees.
            places: Feature that holds the answer for each of `sets`.
        """
        onnx = library("onnx")

        def tensor(name: str, values: Sequence[float]) -> Any:
            return onnx.numpy_helper.from_array(np.array(values, self.dtype), name)

        nodes, leaves = self._nodes, self._leaves
        return onnx.helper.make_node(
            "TreeEnsembleRegressor",
            [rows],
            [scores],
            domain="ai.onnx.ml",
            n_targets=len(base),
            aggregate_function="SUM",
            base_values_as_tensor=tensor("base", base),
            nodes_treeids=nodes["tree"],
            nodes_nodeids=nodes["node"],
            nodes_featureids=[each if each >= 0 else places[-1 - each] for each in nodes["feature"]],
            nodes_modes=nodes["mode"],
            nodes_truenodeids=nodes["true"],
            nodes_falsenodeids=nodes["false"],
            nodes_missing_value_tracks_true=nodes["missing"],
            nodes_values_as_tensor=tensor("thresholds", self._values),
            target_treeids=leaves["tree"],
            target_nodeids=leaves["node"],
            target_ids=leaves["target"],
            target_weights_as_tensor=tensor("leaves", self._weights),
        )

    def trees(self, base: Sequence[float], preparation: Preparation) -> Trees | None:
        """Return the trees that say what each feature contributes; None if it is not known which rows reached them.

        Args:
            base: Scores of a forest without trees.
            preparation: What happens to features before the trees see them.
        """
        covers = [cover for cover in self._covers if cover is not None]
        if not covers or len(covers) < len(self._covers):
            return None
        tree, node = (np.array(self._nodes[name], np.int64) for name in ("tree", "node"))
        size = int(node.max()) + 1
        keys = tree * size + node
        order = np.argsort(keys)

        def place(tree: NDArray[np.int64], node: NDArray[np.int64]) -> NDArray[np.int32]:
            found: NDArray[np.int32] = order[np.searchsorted(keys[order], tree * size + node)].astype(np.int32)
            return found

        asked, sets = np.array(self._nodes["feature"], np.int32), self.sets
        kind = np.array([_KINDS[mode] for mode in self._nodes["mode"]], np.uint8)
        kind[asked < 0] = AMONG
        value = np.array(self._values, self.dtype).astype(np.float64)
        value[asked < 0] = -1 - asked[asked < 0]
        leaves = np.flatnonzero(kind == LEAF)
        value[leaves] = np.arange(len(leaves))
        weights = np.zeros((len(leaves), len(base)))
        of, at, target = (np.array(each, np.int64) for each in self._leaves.values())
        rows = value[place(of, at)].astype(np.int64)
        np.add.at(weights, (rows, target), np.array(self._weights, self.dtype).astype(np.float64))
        missing = np.array(self._nodes["missing"], np.bool_)
        missing[asked < 0] = [sets[-1 - each].missing for each in asked[asked < 0]]
        absent = np.nan if preparation.missing is None else self.dtype(preparation.missing)
        trees = Trees(
            kind=kind,
            feature=np.array([each if each >= 0 else sets[-1 - each].feature for each in asked.tolist()], np.int32),
            value=value,
            yes=place(tree, np.array(self._nodes["true"], np.int64)),
            no=place(tree, np.array(self._nodes["false"], np.int64)),
            missing=missing,
            cover=np.array(covers, np.float64),
            weights=weights,
            base=np.array(base, self.dtype).astype(np.float64),
            categories=np.array([value for each in sets for value in each.values], np.int64),
            ends=np.cumsum([len(each.values) for each in sets], dtype=np.int64),
            zeros=np.array(preparation.zeros, np.int32),
            rules=np.array([preparation.lowest, absent], np.float64),
        )
        return trees if trees.steps <= MOST_STEPS else None


@dataclass(frozen=True)
class Preparation:
    """What a library does with features before its trees see them, as numbers of features.

    Attributes:
        lowest: Smallest number that is read as a category; whole parts count, so that 2.7 is category 2.
        zeros: Features whose zeros are missing values.
        missing: Value that stands for a missing one, beside NaN; None for no such value.
    """

    lowest: float = 0.0
    zeros: tuple[int, ...] = ()
    missing: float | None = None


class _Nodes:
    """Nodes and constants of the graph, one after the other; `at` is the name of the latest values."""

    def __init__(self, features: int, dtype: type[np.floating[Any]]) -> None:
        self.onnx = library("onnx")
        self.features, self.dtype, self.at = features, dtype, INPUT
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, values: Any) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(values), name))
        return name

    def number(self, value: float) -> str:
        return self.constant(np.array(value, self.dtype))

    def of(self, places: Sequence[int]) -> str:
        return self.constant(np.isin(np.arange(self.features), places)[None])

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        self.at = f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [self.at], **attributes))
        return self.at

    def replace(self, where: str, by: str, rows: str) -> str:
        return self.add("Where", where, by, rows)


def _prepare(graph: _Nodes, preparation: Preparation) -> None:
    rows = graph.at
    if preparation.missing is not None:
        rows = graph.replace(graph.add("Equal", rows, graph.number(preparation.missing)), graph.number(np.nan), rows)
    if preparation.zeros:
        zero = graph.add("LessOrEqual", graph.add("Abs", rows), graph.number(ZERO))
        rows = graph.replace(graph.add("And", zero, graph.of(preparation.zeros)), graph.number(np.nan), rows)


def _look_up(graph: _Nodes, sets: Sequence[CategorySet], lowest: float) -> list[int]:
    """Add the answers for sets of categories to the features; return the place of each."""
    found = look_up(sets)
    rows = graph.at

    def numbers(values: NDArray[Any]) -> str:
        return graph.constant(values.astype(graph.dtype)[None])

    categories = graph.add("Gather", rows, graph.constant(found.features), axis=1)
    above = graph.add("GreaterOrEqual", categories, graph.number(lowest))
    known = graph.add("And", above, graph.add("Less", categories, numbers(found.ends)))
    lacking = graph.add("IsNaN", categories)
    other = graph.add("Where", lacking, numbers(found.ends + 1), numbers(found.ends))
    code = graph.add("Cast", graph.add("Where", known, categories, other), to=graph.onnx.TensorProto.INT64)
    row = graph.add("Add", code, graph.constant(found.offsets[None]))
    width = len(found.features) * found.table.shape[1]
    answers = graph.add("Gather", graph.constant(found.table), row, axis=0)
    flat = graph.add("Reshape", answers, graph.constant(np.array([0, width], np.int64)))
    element = graph.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(graph.dtype))
    graph.add("Concat", rows, graph.add("Cast", flat, to=element), axis=1)
    return [graph.features + found.places[each] for each in sets]


def assemble(
    forest: Forest,
    features: int,
    base: Sequence[float],
    *,
    form: Form,
    preparation: Preparation | None = None,
    separate: bool = False,
) -> tuple[bytes, Graph, Trees | None]:
    """Return the ONNX file of a forest, how it is fed, and its trees where they add up to log-odds.

    Args:
        forest: The trees.
        features: Number F of features; the graph takes (N, F) in the precision of the forest.
        base: Scores to which the leaves are added: one, or K.
        form: What the scores are.
        preparation: What happens to features before the trees see them.
        separate: Whether each score is the log-odds of its class against all others; they become logarithms of
            probabilities.
    """
    graph = _Nodes(features, forest.dtype)
    onnx = graph.onnx
    preparation = preparation or Preparation()
    _prepare(graph, preparation)
    places = _look_up(graph, forest.sets, preparation.lowest) if forest.sets else []
    if separate:
        graph.nodes.append(forest.operator(graph.at, "margins", base, places))
        graph.add("Neg", graph.add("Softplus", graph.add("Neg", "margins")))
        graph.nodes[-1].output[0] = OUTPUT
    else:
        graph.nodes.append(forest.operator(graph.at, OUTPUT, base, places))
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(forest.dtype))
    document = onnx.helper.make_graph(
        graph.nodes,
        "forest",
        [onnx.helper.make_tensor_value_info(INPUT, element, ["N", features])],
        [onnx.helper.make_tensor_value_info(OUTPUT, onnx.TensorProto.FLOAT, ["N", len(base)])],
        graph.constants,
    )
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
    model = onnx.helper.make_model(document, opset_imports=opsets, ir_version=IR_VERSION, producer_name="candor")
    onnx.checker.check_model(model)
    dtype: Literal["float32", "float64"] = "float32" if forest.dtype is np.float32 else "float64"
    fed = GraphInput(name=INPUT, dtype=dtype, shape=(features,))
    trees = None if separate or form not in ("margin", "logits") else forest.trees(base, preparation)
    return model.SerializeToString(), Graph(inputs=(fed,), output=GraphOutput(name=OUTPUT, form=form)), trees
