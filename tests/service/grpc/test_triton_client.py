"""Triton's own client, as it is: `tritonclient.grpc`, its aio variant and its streams."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from sqlalchemy import select
from tritonclient.grpc import aio
from tritonclient.utils import InferenceServerException

from service.inference.session import Session
from service.state.tables import predictions
from tests.waiting import PATIENCE_S

from .conftest import address


def tensor(images: np.ndarray) -> triton.InferInput:
    given = triton.InferInput("input", list(images.shape), "UINT8")
    given.set_data_from_numpy(images)
    return given


def texts(name: str, values: list[str]) -> triton.InferInput:
    given = triton.InferInput(name, [len(values)], "BYTES")
    given.set_data_from_numpy(np.array(values, dtype=object))
    return given


@pytest.fixture
def client(speaking: Any) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(address(speaking)) as connected:
        yield connected


def check(result: Any, digits: Any, session: Session, rows: slice) -> None:
    """Check that all four outputs are what the bundle says."""
    logits = session.run(digits.images[rows])
    probabilities = digits.bundle.calibrator.predict_proba(logits)
    np.testing.assert_allclose(result.as_numpy("logits"), logits, atol=1e-4)
    np.testing.assert_allclose(result.as_numpy("probabilities"), probabilities, atol=1e-5)
    np.testing.assert_allclose(result.as_numpy("confidence"), probabilities.max(axis=1), atol=1e-5)
    assert result.as_numpy("decision").shape == (len(logits),)


@pytest.mark.parametrize("compressed", [None, "gzip", "deflate"])
def test_the_answer_has_the_calibrated_probabilities_of_the_bundle(
    client: Any, digits: Any, session: Session, compressed: str | None
) -> None:
    given = [tensor(digits.images[:40])]
    result = client.infer("digits", given, request_id="scan 1", compression_algorithm=compressed)
    check(result, digits, session, slice(0, 40))
    response = result.get_response()
    assert (response.id, response.model_name, response.model_version) == ("scan 1", "digits", "1")
    assert len(set(response.parameters["prediction_ids"].string_param.split(","))) == 40


def test_outputs_and_the_policy_are_given_as_they_are_asked_for(client: Any, digits: Any) -> None:
    outputs = [triton.InferRequestedOutput("decision"), triton.InferRequestedOutput("probabilities", class_count=3)]
    policy = {"policy": "auto-read"}
    result = client.infer("digits", [tensor(digits.images[:2])], "1", outputs=outputs, parameters=policy)
    assert [output.name for output in result.get_response().outputs] == ["decision", "probabilities"]
    assert result.get_response().parameters["policy"].string_param == "auto-read@1"
    assert set(result.as_numpy("decision")) <= {b"accept", b"review"}
    assert result.as_numpy("probabilities").shape == (2, 3)


def test_rows_have_names_segments_and_amounts_and_take_feedback(speaking: Any, client: Any, digits: Any) -> None:
    given = {"references": ["g-1", "größer"], "groups": ["card-5", "card-5"], "segments": ["DE", ""]}
    names = [texts(name, values) for name, values in given.items()]
    amounts = triton.InferInput("amounts", [2], "FP32")
    amounts.set_data_from_numpy(np.array([2.5, np.nan], np.float32))
    names.append(amounts)
    client.infer("digits", [*names, tensor(digits.images[:2])])
    client.infer("digits", [texts("references", ["g-3"]), tensor(digits.images[:1])], parameters={"segment": "FR"})
    listed = {"references": '["g-4", null]', "groups": '["card-5", ""]'}
    client.infer("digits", [tensor(digits.images[:2])], parameters=listed)
    assert speaking.runtime.log.flush()
    columns = predictions.c.reference, predictions.c.segment, predictions.c.cluster, predictions.c.amount
    with speaking.runtime.database.connect() as connection:
        rows = {reference: others for reference, *others in connection.execute(select(*columns))}
    assert [rows[name][2] for name in ("g-1", "größer", "g-3")] == [2.5, None, None]
    assert {name: rows[name][0] for name in ("g-1", "größer", "g-3")} == {"g-1": "DE", "größer": None, "g-3": "FR"}
    assert rows["g-1"][1] == rows["größer"][1] == rows["g-4"][1] != rows["g-3"][1]
    item = {"reference": "größer", "label": "7", "source": "reviewer"}
    assert speaking.http.post("/feedback", json={"items": [item]}).json()["stored"] == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("scan-91", "`references` must be the text of a JSON array"),
        ("[1, 2]", "`references` must be the text of a JSON array"),
        ("[" * 100_000, "`references` must be the text of a JSON array"),
        ('["a"]', "references"),
        ('["a", "\\u0000"]', "/parameters/references/1"),
        ('["a", "\\ud800"]', "`references` must be the text of a JSON array"),
    ],
    ids=["no array", "numbers", "deep", "too few", "NUL", "half a pair"],
)
def test_references_as_a_parameter_are_one_text_for_each_row(client: Any, digits: Any, given: str, says: str) -> None:
    with pytest.raises(InferenceServerException) as refused:
        client.infer("digits", [tensor(digits.images[:2])], parameters={"references": given})
    assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert says in refused.value.message()


def test_references_are_not_given_twice(client: Any, digits: Any) -> None:
    given = [texts("references", ["a"]), tensor(digits.images[:1])]
    with pytest.raises(InferenceServerException, match="`references` is given twice"):
        client.infer("digits", given, parameters={"references": '["a"]'})


def test_health_metadata_configuration_and_statistics(client: Any, digits: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("digits")
    assert client.is_model_ready("digits", "1")
    assert not client.is_model_ready("digits", "2")
    assert not client.is_model_ready("letters")
    assert client.get_server_metadata().name == "candor"
    metadata = client.get_model_metadata("digits", "1")
    (given,) = metadata.inputs
    assert (given.name, given.datatype, list(given.shape)) == ("input", "UINT8", [-1, 8, 8, 1])
    assert {output.name: list(output.shape) for output in metadata.outputs} == {
        "logits": [-1, 10],
        "probabilities": [-1, 10],
        "confidence": [-1],
        "decision": [-1],
    }
    config = client.get_model_config("digits").config
    assert (list(config.input[0].dims), config.input[0].data_type) == ([8, 8, 1], triton.model_config_pb2.TYPE_UINT8)
    assert "7" in config.parameters["labels"].string_value

    def counted() -> tuple[int, int]:
        (entry,) = client.get_inference_statistics("digits").model_stats
        return entry.inference_count, entry.inference_stats.success.count

    before = counted()
    client.infer("digits", [tensor(digits.images[:7])])
    after = counted()
    assert (after[0] - before[0], after[1] - before[1]) == (7, 1)


def test_the_repository(speak: Callable[..., Any], digits: Any) -> None:
    with triton.InferenceServerClient(address(speak())) as client:
        (entry,) = client.get_model_repository_index().models
        assert (entry.name, entry.version, entry.state) == ("digits", "1", "READY")
        client.unload_model("digits")
        assert not client.is_model_ready("digits")
        (entry,) = client.get_model_repository_index().models
        assert (entry.state, entry.reason) == ("UNAVAILABLE", "unloaded")
        with pytest.raises(InferenceServerException, match="unloaded") as refused:
            client.infer("digits", [tensor(digits.images[:1])])
        assert refused.value.status() == "StatusCode.UNAVAILABLE"
        with pytest.raises(InferenceServerException, match="its bundle defines it"):
            client.load_model("digits", config="{}")
        client.load_model("digits")
        assert client.infer("digits", [tensor(digits.images[:1])]).as_numpy("confidence").shape == (1,)


def test_a_stream_is_answered_in_order_and_survives_errors(client: Any, digits: Any, session: Session) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for row in range(100):  # more than the service reads ahead
        client.async_stream_infer("digits", [tensor(digits.images[row : row + 1])], request_id=str(row))
    client.async_stream_infer("letters", [tensor(digits.images[:1])], request_id="no model")
    client.async_stream_infer("digits", [tensor(digits.images[:4])], request_id="last")
    for row in range(100):
        result, error = answers.get(timeout=PATIENCE_S)
        assert error is None
        assert result.get_response().id == str(row)
        assert result.get_response().parameters["triton_final_response"].bool_param
        if row % 25 == 0:
            check(result, digits, session, slice(row, row + 1))
    _, error = answers.get(timeout=PATIENCE_S)
    assert "letters" in str(error)
    result, error = answers.get(timeout=PATIENCE_S)
    check(result, digits, session, slice(0, 4))
    client.stop_stream()


def test_the_aio_client_infers_and_streams(speaking: Any, digits: Any, session: Session) -> None:
    async def run() -> None:
        async with aio.InferenceServerClient(address(speaking)) as client:
            assert await client.is_model_ready("digits")
            given = [tensor(digits.images[row : row + 1]) for row in range(8)]
            results = await asyncio.gather(*[client.infer("digits", [one]) for one in given])
            for row, result in enumerate(results):
                check(result, digits, session, slice(row, row + 1))
            with pytest.raises(InferenceServerException, match="Unknown output"):
                await client.infer("digits", [given[0]], outputs=[triton.InferRequestedOutput("scores")])

            async def requests() -> AsyncIterator[dict[str, Any]]:
                for row, one in enumerate(given):
                    yield {"model_name": "digits", "inputs": [one], "request_id": str(row)}

            rows = 0
            async for result, error in client.stream_infer(requests()):
                assert error is None
                assert result.get_response().id == str(rows)
                rows += 1
            assert rows == len(given)

    asyncio.run(run())
