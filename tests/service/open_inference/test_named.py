"""Tensors by name over /v2: columns of tables, inputs of graphs, scores. The answers are those of /v1."""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http as triton
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.utils import InferenceServerException

from tests.ports import free_port
from tests.service import imported_models
from tests.service.grpc.conftest import address

LENGTH = "inference-header-content-length"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("named")
    models = ("sentences", "payments", "claims", "photographs", "shares")
    rows: dict[str, Any] = {name: getattr(imported_models, name)(root) for name in models}
    imported_models.drivers(root)
    imported_models.vendor(root)
    imported_models.vendor(root, "upstream", "probabilities")
    return {"root": root, **rows}


@pytest.fixture(scope="module")
def served(launch_many: Any, made: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    state = tmp_path_factory.mktemp("state")
    running = launch_many(state, bundles=made["root"], default_model="payments", policies=None, grpc_port=free_port())
    yield running
    running.close()


@pytest.fixture(scope="module")
def client(served: Any) -> Iterator[Any]:
    with triton.InferenceServerClient(served.url.removeprefix("http://")) as found:
        yield found


def by_v1(served: Any, model: str, **body: Any) -> np.ndarray:
    response = served.http.post(f"/v1/models/{model}/predict", json=body)
    assert response.status_code == 200, response.text
    return np.array([[*row["probabilities"].values()] for row in response.json()["predictions"]], np.float32)


def by_v2(client: Any, model: str, *, binary: bool = True, **arrays: tuple[str, Any]) -> np.ndarray:
    tensors = []
    for name, (datatype, array) in arrays.items():
        array = np.asarray(array, triton.triton_to_np_dtype(datatype))
        tensors.append(triton.InferInput(name, list(array.shape), datatype))
        tensors[-1].set_data_from_numpy(array, binary_data=binary)
    return client.infer(model, tensors).as_numpy("probabilities")


@pytest.mark.parametrize("binary", [True, False])
def test_a_graph_of_several_tensors_takes_them_by_name(served: Any, client: Any, made: Any, binary: bool) -> None:
    rows = made["sentences"][:5]
    wanted = by_v1(served, "sentences", inputs=[{"ids": r["ids"].tolist(), "mask": r["mask"].tolist()} for r in rows])
    for datatype in ("INT64", "UINT8", "FP32"):
        found = by_v2(client, "sentences", binary=binary, mask=("BOOL", rows["mask"]), ids=(datatype, rows["ids"]))
        assert found.tobytes() == wanted.tobytes()
    assert client.get_model_metadata("sentences")["inputs"] == [
        {"name": "ids", "datatype": "INT64", "shape": [-1, 5]},
        {"name": "mask", "datatype": "BOOL", "shape": [-1, 5]},
    ]


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_a_table_takes_a_tensor_per_column(
    served: Any, client: Any, made: Any, binary: bool, shape: tuple[int, ...]
) -> None:
    def column(model: str, name: str) -> np.ndarray:
        return np.array([row[name] for row in made[model][1:9]], object).reshape(shape)

    wanted = by_v1(served, "payments", inputs=made["payments"][1:9])
    texts, amounts = column("payments", "country"), column("payments", "amount")
    found = by_v2(client, "payments", binary=binary, amount=("FP64", amounts), country=("BYTES", texts))
    assert found.tobytes() == wanted.tobytes()
    wanted = by_v1(served, "claims", inputs=made["claims"][1:9])
    faults, ages = column("claims", "fault"), column("claims", "age")
    for datatype in ("FP32", "INT16"):
        found = by_v2(client, "claims", binary=binary, fault=("BYTES", faults), age=(datatype, ages))
        assert found.tobytes() == wanted.tobytes()
    sevens = by_v1(served, "claims", inputs=[{"age": 3, "fault": "7"}])
    assert by_v2(client, "claims", fault=("INT64", [7]), age=("FP32", [3])).tobytes() == sevens.tobytes()


def test_a_table_of_one_matrix_takes_it_too(served: Any, client: Any, made: Any) -> None:
    matrix = np.array([[3, 1], [np.nan, 2]], np.float32)
    wanted = by_v1(served, "claims", inputs=[{"age": 3, "fault": "driver"}, {"fault": "third party"}])
    assert by_v2(client, "claims", input=("FP32", matrix)).tobytes() == wanted.tobytes()
    alone = served.http.post("/v2/models/claims/infer", content=matrix.tobytes(), headers={LENGTH: "0"})
    assert alone.status_code == 200, alone.text
    assert client.get_model_metadata("claims")["inputs"] == [
        {"name": "age", "datatype": "FP32", "shape": [-1, 1]},
        {"name": "fault", "datatype": "BYTES", "shape": [-1, 1]},
    ]
    assert [
        (column["name"], column["data_type"], column["dims"]) for column in client.get_model_config("claims")["input"]
    ] == [("age", "TYPE_FP32", [1]), ("fault", "TYPE_STRING", [1])]


@pytest.mark.parametrize(
    ("model", "own", "datatype", "matrix"),
    [
        ("photographs", "x", "UINT8", None),
        ("claims", "x", "FP32", np.array([[3, 1], [40, 2]], np.float32)),
        ("shares", "float_input", "FP64", np.array([[0.1, 0.7], [0.5, 0.2]])),
    ],
)
def test_the_only_input_has_the_name_of_its_graph_and_input(
    served: Any, client: Any, made: Any, model: str, own: str, datatype: str, matrix: np.ndarray | None
) -> None:
    matrix = made[model][:2] if matrix is None else matrix
    found = [by_v2(client, model, **{name: (datatype, matrix)}) for name in (own, "input")]
    with tritonclient.grpc.InferenceServerClient(address(served)) as over_grpc:
        for name in (own, "input"):
            given = tritonclient.grpc.InferInput(name, list(matrix.shape), datatype)
            given.set_data_from_numpy(matrix)
            found.append(over_grpc.infer(model, [given]).as_numpy("probabilities"))
        if model != "claims":  # its columns
            (listed,) = over_grpc.get_model_metadata(model).inputs
            (configured,) = over_grpc.get_model_config(model).config.input
            assert listed.name == configured.name == own
            assert client.get_model_metadata(model)["inputs"] == [
                {"name": own, "datatype": datatype, "shape": [-1, *matrix.shape[1:]]}
            ]
    assert len({one.tobytes() for one in found}) == 1
    with pytest.raises(InferenceServerException, match=f"'{own}'|{own}"):
        by_v2(client, model, **{own: (datatype, matrix)}, input=(datatype, matrix))


def test_missing_values_are_nan_empty_texts_null_or_a_column_left_out(served: Any, client: Any) -> None:
    wanted = by_v1(served, "claims", inputs=[{"age": None, "fault": None}])
    empty = np.array([""], object)
    found = [
        by_v2(client, "claims", age=("FP64", [np.nan]), fault=("BYTES", empty)),
        by_v2(client, "claims", binary=False, fault=("BYTES", empty)),
        by_v2(client, "claims", age=("FP32", [np.nan])),
    ]
    tensors = [
        {"name": "fault", "shape": [1], "datatype": "BYTES", "data": [None]},
        {"name": "age", "shape": [1], "datatype": "INT32", "data": [None]},
    ]
    answer = served.http.post("/v2/models/claims/infer", json={"inputs": tensors}).json()
    found.append(np.array(next(o["data"] for o in answer["outputs"] if o["name"] == "probabilities"), np.float32))
    assert {one.tobytes() for one in found} == {wanted.tobytes()}


@pytest.mark.parametrize("binary", [True, False])
def test_scores_are_a_tensor(served: Any, client: Any, binary: bool) -> None:
    scores = np.array([0.0, 0.25, 0.9, 1.0])
    wanted = by_v1(served, "vendor", scores=scores.tolist())
    for given in (scores, scores[:, None]):
        assert by_v2(client, "vendor", binary=binary, scores=("FP64", given)).tobytes() == wanted.tobytes()
    alone = served.http.post("/v2/models/vendor/infer", content=scores.tobytes(), headers={LENGTH: "0"})
    assert alone.status_code == 200, alone.text
    pairs = np.stack([1 - scores, scores], axis=1)
    wanted = by_v1(served, "upstream", probabilities=pairs.tolist())
    assert by_v2(client, "upstream", binary=binary, probabilities=("FP64", pairs)).tobytes() == wanted.tobytes()
    single = by_v2(client, "upstream", binary=binary, probabilities=("FP32", pairs))
    np.testing.assert_allclose(single, wanted, atol=1e-6)
    assert client.get_model_metadata("vendor")["inputs"] == [{"name": "scores", "datatype": "FP64", "shape": [-1, 1]}]
    assert client.get_model_metadata("upstream")["inputs"][0]["shape"] == [-1, 2]


def test_rows_keep_their_names(served: Any, client: Any) -> None:
    tensors = [triton.InferInput("scores", [2], "FP32"), triton.InferInput("references", [2], "BYTES")]
    tensors[0].set_data_from_numpy(np.array([0.1, 0.9], np.float32))
    tensors[1].set_data_from_numpy(np.array(["tx-1", ""], object))
    assert client.infer("vendor", tensors).as_numpy("probabilities").shape == (2, 2)


def tensor(name: str, datatype: str, data: list[Any], *shape: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape) or [len(data)], "data": data}


IDS, MASK = tensor("ids", "INT64", [1] * 10, 2, 5), tensor("mask", "BOOL", [True] * 10, 2, 5)
COUNTRY, AMOUNT = tensor("country", "BYTES", ["de", "fr"]), tensor("amount", "FP64", [1, 2.5])


@pytest.mark.parametrize(
    ("model", "tensors", "text"),
    [
        ("sentences", [IDS], 'Missing: \'mask\'. Where: /inputs. Found: ["ids"]. Expected: ["ids", "mask"]'),
        ("sentences", [IDS, MASK, IDS], "Unknown or duplicate: 'ids'"),
        ("sentences", [IDS, MASK, tensor("input", "FP32", [1])], "Unknown or duplicate: 'input'"),
        ("sentences", [IDS, tensor("mask", "BOOL", [True] * 5, 1, 5)], "same number of rows. Where: /inputs/1/shape"),
        ("sentences", [IDS, tensor("mask", "BOOL", [True] * 10)], "same number of rows"),
        ("sentences", [IDS, tensor("mask", "BOOL", [True] * 4, 2, 2)], "Where: /inputs/1/shape. Found: [2, 2]. Exp"),
        ("sentences", [IDS, tensor("mask", "BOOL", [1] * 10, 2, 5)], "true and false only. Where: /inputs/1/data"),
        ("sentences", [IDS, tensor("mask", "UINT8", [1] * 10, 2, 5)], "Where: /inputs/1/datatype. Found: UINT8"),
        ("sentences", [MASK, tensor("ids", "BYTES", ["1"] * 10, 2, 5)], "The model takes INT64. Where: /inputs/1/data"),
        ("sentences", [MASK, tensor("ids", "FP32", [1] * 9 + [1.5], 2, 5)], "row 1 of /inputs/1. Found: 1.5 (FP32)"),
        ("sentences", [MASK, tensor("ids", "UINT64", [1] * 9 + [2**63], 2, 5)], "Where: row 1 of /inputs/1. Found: 9"),
        ("sentences", [MASK, tensor("ids", "INT64", [1] * 9 + [None], 2, 5)], "integers only"),
        ("sentences", [tensor("ids", "INT64", [1], *[])], "Missing: 'mask'"),
        ("payments", [COUNTRY], "Missing: 'amount'"),
        ("payments", [], "Missing: 'country', 'amount'"),
        ("payments", [tensor("references", "BYTES", ["a", "b"])], "Missing: 'country', 'amount'"),
        ("payments", [COUNTRY, tensor("amount", "FP64", [1, None])], "Where: row 1 of /inputs/1. Found: None"),
        ("payments", [COUNTRY, tensor("amount", "BYTES", ["1", "2"])], "Where: /inputs/1/datatype. Found: BYTES"),
        ("payments", [AMOUNT, tensor("country", "BOOL", [True, True])], "Where: /inputs/1/datatype. Found: BOOL"),
        ("payments", [AMOUNT, tensor("country", "BYTES", ["de", "it"])], "Where: row 1 of /inputs/1. Found: 'it'"),
        ("payments", [AMOUNT, tensor("country", "BYTES", ["", "de"])], "Where: row 0 of /inputs/1. Found: ''"),
        ("payments", [AMOUNT, tensor("country", "FP32", [1, 2])], "The model takes BYTES"),
        ("payments", [AMOUNT, tensor("country", "BYTES", ["de", "fr"], 1, 2)], "same number of rows"),
        ("claims", [], "one input tensor per column"),
        ("claims", [tensor("input", "FP32", [1, 1], 1, 2), tensor("age", "FP32", [1])], "one input tensor named"),
        ("claims", [tensor("age", "FP64", [1, 1e39])], "Where: row 1 of /inputs/0. Found: 1e+39"),
        ("claims", [tensor("age", "FP32", [1, 1], 1, 2)], "Where: /inputs/0/shape. Found: [1, 2]. Expected: [N] or"),
        ("claims", [tensor("fault", "INT8", [8])], "Column 'fault' has an unknown value. Where: row 0"),
        ("claims", [tensor("fault", "FP32", [7])], "Where: /inputs/0/datatype. Found: FP32"),
        ("vendor", [tensor("scores", "FP64", [0.5, 1.5])], "Where: row 1 of /inputs/0. Found: 1.5. Expected: 0 to 1"),
        ("vendor", [tensor("scores", "INT64", [1, 2**53 + 1])], "row 1 of /inputs/0. Found: 9007199254740993 (INT64)"),
        ("vendor", [tensor("scores", "BOOL", [True])], "Where: /inputs/0/datatype. Found: BOOL"),
        ("vendor", [tensor("scores", "FP32", [0.5, 0.5], 1, 2)], "Expected: [N] or [N, 1]"),
        ("vendor", [tensor("scores", "FP32", [0.5], *[]) | {"shape": []}], "same number of rows"),
        ("vendor", [tensor("input", "FP32", [0.5])], "Unknown or duplicate: 'input'"),
        ("upstream", [tensor("probabilities", "FP32", [0.5] * 2)], "Expected: [N, 2]"),
        ("upstream", [tensor("probabilities", "FP32", [0.5] * 3 + [0.6], 2, 2)], "row 1 of /inputs/0. Found: 1.1"),
    ],
)
def test_what_does_not_fit_is_refused_at_its_place(served: Any, model: str, tensors: Any, text: str) -> None:
    response = served.http.post(f"/v2/models/{model}/infer", json={"inputs": tensors})
    assert response.status_code == 422, response.text
    assert text in response.json()["error"]


@pytest.mark.parametrize("model", ["sentences", "payments"])
def test_several_tensors_cannot_come_without_json(served: Any, model: str) -> None:
    response = served.http.post(f"/v2/models/{model}/infer", content=b"12345678", headers={LENGTH: "0"})
    assert (response.status_code, "requires a JSON part" in response.json()["error"]) == (400, True)


def in_binary(tensors: list[tuple[dict[str, Any], bytes]]) -> tuple[bytes, dict[str, str]]:
    entries = [
        {name: entry[name] for name in ("name", "datatype", "shape")} | {"parameters": {"binary_data_size": len(data)}}
        for entry, data in tensors
    ]
    head = json.dumps({"inputs": entries}).encode()
    return head + b"".join(data for _, data in tensors), {LENGTH: str(len(head))}


@pytest.mark.parametrize(
    ("model", "tensors", "text"),
    [
        ("sentences", [(IDS, b"\1" * 80), (MASK, b"\1" * 9 + b"\2")], "0 or 1. Where: /inputs/1. Found: 2"),
        ("sentences", [(IDS, b"\1" * 80), (MASK, b"\1" * 9)], "Found: 9 bytes. Expected: 10 bytes"),
        ("payments", [(COUNTRY, b"\2\0\0\0de\2\0\0\0f\xff"), (AMOUNT, bytes(16))], "row 1 of /inputs/0. Found: byte"),
        ("payments", [(COUNTRY, b"\2\0\0\0de\xff\xff\xff\xfffr"), (AMOUNT, bytes(16))], "the last of which ends"),
        (
            "payments",
            [(COUNTRY, b"\2\0\0\0de\2\0\0\0fr"), (AMOUNT, struct.pack("<2d", 1, np.nan))],
            "row 1 of /inputs/1",
        ),
    ],
)
def test_wrong_bytes_are_refused_at_their_place(served: Any, model: str, tensors: Any, text: str) -> None:
    body, headers = in_binary(tensors)
    response = served.http.post(f"/v2/models/{model}/infer", content=body, headers=headers)
    assert response.status_code == 422, response.text
    assert text in response.json()["error"]


def test_a_long_text_among_many_short_ones_takes_no_memory_for_each(client: Any, served: Any) -> None:
    """NumPy would give all 1,000 texts 4 MB each."""
    long = np.array(["x" * 1_000_000, *["de"] * 999], object)
    with pytest.raises(InferenceServerException, match="row 0 of /inputs/0"):
        by_v2(client, "payments", country=("BYTES", long), amount=("FP64", np.zeros(1000)))
    for model, body in (
        ("payments", {"inputs": [{"country": text, "amount": 1} for text in long]}),
        ("sentences", {"inputs": [{"ids": [text] * 5, "mask": [True] * 5} for text in [long[0], *[1] * 20]]}),
        ("vendor", {"scores": [long[0], *[0.5] * 999]}),
    ):
        answer = served.http.post(f"/v1/models/{model}/predict", json=body)
        assert answer.status_code == 422, answer.text


def absent(served: Any) -> dict[tuple[str, str], float]:
    """Accepted missing and unknown values so far, by column and reason."""
    return {
        (sample.labels["column"], sample.labels["reason"]): sample.value
        for family in text_string_to_metric_families(served.http.get("/metrics").text)
        for sample in family.samples
        if sample.name == "candor_absent_values_total" and sample.labels["model"] == "claims"
    }


@pytest.mark.parametrize("code", [4, -1, 1.5, 1e9])
def test_a_number_that_is_no_code_of_a_category_is_refused(served: Any, client: Any, code: float) -> None:
    """The column refuses unknown categories."""
    rows = np.array([[3, 0], [41, code], [41, 1]], np.float32)
    npy = io.BytesIO()
    np.save(npy, rows)
    path, media = "/v1/models/claims/predict", {"content-type": "application/x-npy"}
    before = refused(served, "fault", "unknown")
    answers = [
        served.http.post(path, json={"inputs": rows.tolist()}),
        served.http.post(path, content=npy.getvalue(), headers=media),
    ]
    for answer in answers:
        assert (answer.status_code, answer.json()["where"]) == (422, "/inputs/1"), answer.text
        assert answer.json()["expected"] == "the code of a category, 1 to 3"
        assert "'fault'" in answer.json()["detail"]
    with pytest.raises(InferenceServerException, match=r"'fault' has an unknown category.*row 1 of /inputs/0"):
        by_v2(client, "claims", input=("FP32", rows))
    assert refused(served, "fault", "unknown") == before + 3


def refused(served: Any, column: str, reason: str) -> float:
    return float(served.metric("candor_refused_values_total", column=column, reason=reason))


def test_requests_that_a_column_refuses_are_counted_by_column_and_reason(served: Any, client: Any) -> None:
    asked = ("fault", "unknown"), ("amount", "missing"), ("age", "invalid")
    before = [refused(served, *one) for one in asked]
    for model, row in (
        ("claims", {"age": 3, "fault": "nobody"}),
        ("payments", {"country": "de", "amount": None}),
        ("claims", {"age": "old", "fault": "driver"}),
    ):
        assert served.http.post(f"/v1/models/{model}/predict", json={"inputs": [row]}).status_code == 422
    with pytest.raises(InferenceServerException):
        by_v2(client, "claims", age=("FP32", [3]), fault=("BYTES", np.array(["nobody"], object)))
    assert [refused(served, *one) for one in asked] == [before[0] + 2, before[1] + 1, before[2] + 1]
    page = served.http.get("/dashboard/models/payments").text
    table = page[page.index("<h3>Missing and unknown values</h3>") :]
    (row,) = (line for line in table.partition("</table>")[0].splitlines() if ">amount<" in line)
    assert re.findall(r'<td class="n">(\d+)</td>', row) == ["0", "0", str(int(before[1]) + 1), "0", "0"]


def test_absent_values_that_are_accepted_are_counted_by_column(served: Any, client: Any) -> None:
    before = absent(served)

    def counted() -> dict[tuple[str, str], float]:
        nonlocal before
        earlier, before = before, absent(served)
        return {key: value - earlier.get(key, 0) for key, value in before.items() if value != earlier.get(key)}

    by_v1(served, "claims", inputs=[{"age": 3, "fault": "driver"}])
    assert counted() == {}
    by_v1(served, "claims", inputs=[{}, {"age": None, "fault": "driver"}, {"age": 3, "fault": "driver"}])
    assert counted() == {("age", "missing"): 2, ("fault", "missing"): 1}
    by_v1(served, "claims", inputs=[[None, 0], [3, 1]])
    assert counted() == {("age", "missing"): 1, ("fault", "missing"): 1}
    unknown = by_v1(served, "drivers", inputs=[{"age": 40, "fault": "nobody"}])
    by_code = by_v1(served, "drivers", inputs=[[40, 99], [40, 0.5], [40, -1], [40, 2]])
    assert (by_code[:3] == unknown).all()
    assert (by_code[3] == by_v1(served, "drivers", inputs=[{"age": 40, "fault": "third party"}])).all()
    assert served.metric("candor_absent_values_total", model="drivers", column="fault", reason="unknown") == 4
    by_v2(client, "claims", age=("FP32", [np.nan, 3]), fault=("BYTES", np.array(["driver", ""], object)))
    assert counted() == {("age", "missing"): 1, ("fault", "missing"): 1}
    refused = served.http.post("/v1/models/claims/predict", json={"inputs": [{}, {"fault": "nobody"}]})
    assert (refused.status_code, refused.json()["where"], counted()) == (422, "/inputs/1", {})
