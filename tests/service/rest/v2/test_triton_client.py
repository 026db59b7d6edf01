"""Triton's own client, as it is, against the service: `tritonclient.http` and its aio variant."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from sqlalchemy import select
from tritonclient.http import aio
from tritonclient.utils import InferenceServerException

from service.inference.session import Session
from service.state.tables import predictions


def tensor(images: np.ndarray, datatype: str = "UINT8", *, binary: bool = True) -> triton.InferInput:
    given = triton.InferInput("input", list(images.shape), datatype)
    given.set_data_from_numpy(images, binary_data=binary)
    return given


def address(service: Any) -> str:
    return service.url.removeprefix("http://")


@pytest.fixture
def client(shared: Any) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(address(shared)) as connected:
        yield connected


def in_loop(service: Any, act: Callable[[aio.InferenceServerClient], Awaitable[None]]) -> None:
    async def run() -> None:
        async with aio.InferenceServerClient(address(service)) as connected:
            await act(connected)

    asyncio.run(run())


def check(result: Any, digits: Any, session: Session, rows: slice) -> None:
    """Check that all four outputs are what the bundle says."""
    logits = session.run(digits.images[rows])
    probabilities = digits.bundle.calibrator.predict_proba(logits)
    np.testing.assert_allclose(result.as_numpy("logits"), logits, atol=1e-4)
    np.testing.assert_allclose(result.as_numpy("probabilities"), probabilities, atol=1e-5)
    np.testing.assert_allclose(result.as_numpy("confidence"), probabilities.max(axis=1), atol=1e-5)
    assert result.as_numpy("probabilities").dtype == np.float32
    assert result.as_numpy("decision").shape == (len(logits),)


@pytest.mark.parametrize("compressed", [None, "gzip", "deflate"])
@pytest.mark.parametrize("accepted", [None, "gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
def test_every_way_of_sending_gives_the_calibrated_probabilities_of_the_bundle(
    client: Any, digits: Any, session: Session, binary: bool, accepted: str | None, compressed: str | None
) -> None:
    result = client.infer(
        "digits",
        [tensor(digits.images[:40], binary=binary)],
        request_compression_algorithm=compressed,
        response_compression_algorithm=accepted,
        request_id="scan 1",
    )
    check(result, digits, session, slice(0, 40))
    assert result.get_response()["id"] == "scan 1"
    assert result.get_response()["model_name"] == "digits"
    assert result.get_response()["model_version"] == "1"


@pytest.mark.parametrize("binary", [True, False])
def test_outputs_are_given_as_they_are_asked_for(client: Any, digits: Any, binary: bool) -> None:
    outputs = [
        triton.InferRequestedOutput("decision", binary_data=binary),
        triton.InferRequestedOutput("probabilities", binary_data=not binary, class_count=3),
        triton.InferRequestedOutput("logits", binary_data=binary),
    ]
    result = client.infer("digits", [tensor(digits.images[:2])], outputs=outputs, query_params={"policy": "auto-read"})
    response = result.get_response()
    assert [output["name"] for output in response["outputs"]] == ["decision", "probabilities", "logits"]
    assert [("data" in output) for output in response["outputs"]] == [not binary, binary, not binary]
    assert result.as_numpy("confidence") is None
    decisions = {str(text, "utf-8") if isinstance(text, bytes) else text for text in result.as_numpy("decision")}
    assert decisions <= {"accept", "review"}
    assert decisions
    assert result.as_numpy("probabilities").shape == (2, 3)


def test_the_classification_extension_names_the_calibrated_top_classes(
    client: Any, digits: Any, session: Session
) -> None:
    labels = digits.bundle.manifest.labels
    expected = digits.bundle.calibrator.predict_proba(session.run(digits.images[:5]))
    result = client.infer(
        "digits", [tensor(digits.images[:5])], outputs=[triton.InferRequestedOutput("probabilities", class_count=99)]
    )
    rows = result.as_numpy("probabilities")
    assert rows.shape == (5, len(labels))
    for row, probabilities in zip(rows, expected, strict=True):
        values, indices, names = zip(*(text.decode().split(":", 2) for text in row), strict=True)
        order = [int(index) for index in indices]
        assert list(names) == [labels[index] for index in order]
        np.testing.assert_allclose([float(value) for value in values], probabilities[order], atol=1e-5)
        assert [float(value) for value in values] == sorted(map(float, values), reverse=True)


def test_ids_in_the_answer_take_feedback(client: Any, shared: Any, digits: Any) -> None:
    result = client.infer("digits", [tensor(digits.images[:3])])
    ids = result.get_response()["parameters"]["prediction_ids"].split(",")
    assert len(set(ids)) == 3
    items = [{"prediction_id": one, "label": "1", "source": "reviewer"} for one in ids]
    receipt = shared.http.post("/feedback", json={"items": items})
    assert receipt.status_code == 200, receipt.text


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("first", [True, False], ids=["input first", "names first"])
def test_rows_have_references_groups_and_segments(
    service: Any, digits: Any, session: Session, binary: bool, first: bool
) -> None:
    """Before the input and behind it, some in one form and some in the other; what is empty is none."""
    given = {"references": ["scan-1", "", "größer"], "groups": ["card-5", "card-5", ""], "segments": ["", "DE", "FR"]}
    names = []
    for place, (name, values) in enumerate(given.items()):
        shape = [3, 1] if place else [3]
        names.append(triton.InferInput(name, shape, "BYTES"))
        names[-1].set_data_from_numpy(np.array(values, dtype=object).reshape(shape), binary_data=binary or not place)
    inputs = [tensor(digits.images[:3]), *names] if first else [*names, tensor(digits.images[:3])]
    with triton.InferenceServerClient(address(service)) as client:
        result = client.infer("digits", inputs)
    check(result, digits, session, slice(0, 3))
    assert service.runtime.log.flush()
    columns = predictions.c.reference, predictions.c.segment, predictions.c.cluster
    with service.runtime.database.connect() as connection:
        rows = {reference: (segment, cluster) for reference, segment, cluster in connection.execute(select(*columns))}
    assert {reference: segment for reference, (segment, _) in rows.items()} == {
        "scan-1": None,
        None: "DE",
        "größer": "FR",
    }
    assert rows["scan-1"][1] == rows[None][1] != rows["größer"][1]
    item = {"reference": "größer", "label": "7", "source": "reviewer"}
    assert service.http.post("/feedback", json={"items": [item]}).json()["stored"] == 1


def test_health_metadata_configuration_and_statistics(client: Any, digits: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("digits")
    assert client.is_model_ready("digits", "1")
    assert not client.is_model_ready("digits", "2")
    assert not client.is_model_ready("letters")
    assert client.get_server_metadata()["name"] == "candor"
    metadata = client.get_model_metadata("digits", "1")
    (given,) = metadata["inputs"]
    assert (given["name"], given["datatype"], given["shape"]) == ("input", "UINT8", [-1, 8, 8, 1])
    assert {output["name"]: output["shape"] for output in metadata["outputs"]} == {
        "logits": [-1, 10],
        "probabilities": [-1, 10],
        "confidence": [-1],
        "decision": [-1],
    }
    configuration = client.get_model_config("digits")
    assert configuration["input"][0]["dims"] == [8, 8, 1]

    def counted() -> tuple[int, int]:
        (entry,) = client.get_inference_statistics("digits")["model_stats"]
        return entry["inference_count"], entry["inference_stats"]["success"]["count"]

    before = counted()
    client.infer("digits", [tensor(digits.images[:7])])
    after = counted()
    assert (after[0] - before[0], after[1] - before[1]) == (7, 1)


def test_the_repository(service: Any, digits: Any) -> None:
    with triton.InferenceServerClient(address(service)) as client:
        assert client.get_model_repository_index() == [
            {"name": "digits", "version": "1", "state": "READY", "reason": ""}
        ]
        client.unload_model("digits", unload_dependents=True)
        assert not client.is_model_ready("digits")
        (entry,) = client.get_model_repository_index()
        assert (entry["state"], entry["reason"]) == ("UNAVAILABLE", "unloaded")
        with pytest.raises(InferenceServerException, match="unloaded") as refused:
            client.infer("digits", [tensor(digits.images[:1])])
        assert refused.value.status() == "503"
        with pytest.raises(InferenceServerException, match="its bundle defines it"):
            client.load_model("digits", config="{}")
        client.load_model("digits")
        assert client.is_model_ready("digits")
        assert client.infer("digits", [tensor(digits.images[:1])]).as_numpy("confidence").shape == (1,)


@pytest.mark.parametrize(
    ("act", "status", "text"),
    [
        (lambda client, image: client.infer("letters", [tensor(image)]), "404", "Unknown model 'letters'"),
        (lambda client, image: client.infer("digits", [tensor(image)], model_version="9"), "404", "not loaded"),
        (lambda client, image: client.infer("digits", [tensor(image[:, 1:])]), "422", r"shape \[8, 8, 1\]"),
        (
            lambda client, image: client.infer("digits", [tensor(image.astype(np.float32) + 0.5, "FP32")]),
            "422",
            "UINT8 cannot hold",
        ),
        (
            lambda client, image: client.infer("digits", [tensor(image)], parameters={"polcy": "auto-read"}),
            "422",
            r"Where: /parameters/polcy\. .* Did you mean `policy`\?",
        ),
        (lambda client, image: client.infer("digits", [tensor(image)], sequence_id=7), "422", "no state"),
        (lambda client, image: client.infer("digits", [tensor(image)], sequence_id="s"), "422", "no state"),
        (lambda client, image: client.infer("digits", [tensor(image)], priority=1), "422", "order of arrival"),
        (lambda client, image: client.infer("digits", [tensor(image)] * 2), "422", "one input"),
        (
            lambda client, image: client.infer("digits", [tensor(image)], query_params={"policy": "none"}),
            "404",
            "no policy",
        ),
        (lambda client, image: client.get_model_metadata("letters"), "404", "Unknown model"),
        (lambda client, image: client.load_model("letters"), "404", "Unknown model"),
        (lambda client, image: client.get_trace_settings(), "404", "Not Found"),
    ],
)
def test_errors_are_raised_with_their_text(client: Any, digits: Any, act: Any, status: str, text: str) -> None:
    with pytest.raises(InferenceServerException, match=text) as refused:
        act(client, digits.images[:1])
    assert refused.value.status() == status


@pytest.mark.parametrize("compressed", [None, "gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
def test_the_aio_client(shared: Any, digits: Any, session: Session, binary: bool, compressed: str | None) -> None:
    async def act(client: aio.InferenceServerClient) -> None:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("digits", "r1")
        assert (await client.get_server_metadata())["extensions"]
        assert (await client.get_model_metadata("digits"))["versions"] == ["1"]
        assert (await client.get_model_config("digits"))["name"] == "digits"
        assert (await client.get_model_repository_index())[0]["state"] == "READY"
        assert (await client.get_inference_statistics())["model_stats"][0]["name"] == "digits"
        answers = await asyncio.gather(
            *(
                client.infer(
                    "digits",
                    [tensor(digits.images[start : start + 40], binary=binary)],
                    request_compression_algorithm=compressed,
                    response_compression_algorithm=compressed,
                )
                for start in range(0, 200, 40)
            )
        )
        for index, answer in enumerate(answers):
            check(answer, digits, session, slice(40 * index, 40 * index + 40))
        with pytest.raises(InferenceServerException, match="not loaded"):
            await client.infer("digits", [tensor(digits.images[:1])], model_version="77")

    in_loop(shared, act)


def test_the_aio_client_loads_and_unloads(service: Any) -> None:
    async def act(client: aio.InferenceServerClient) -> None:
        await client.unload_model("digits")
        assert not await client.is_model_ready("digits")
        await client.load_model("digits")
        assert await client.is_model_ready("digits")

    in_loop(service, act)
