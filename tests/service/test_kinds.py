"""Models of texts, of a table's rows and of resized images, trained here and asked over HTTP."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnxruntime as ort
import pytest
import tritonclient.http as triton
from PIL import ExifTags, Image
from tritonclient.utils import InferenceServerException

import bundle as bundles
from bundle import Bundle
from bundle.images import decode_image, encode_png
from candor import Client
from service.rest.payloads import MEDIA_TYPES
from tests.array_files import npy
from tests.conftest import MadeOnce
from training import TrainConfig, train_bundle
from training.data.newsgroups20 import GROUPS

from .conftest import contents

RANDOM = np.random.default_rng(5)
PHOTOS, PIXELS = "photos", 16_000_000


def write_posts(folder: Path) -> None:
    for group in GROUPS:
        subject = "".join(character for character in group if character.isalpha())
        for number in range(6):
            post = folder / "newsgroups20" / group / str(number)
            post.parent.mkdir(parents=True, exist_ok=True)
            post.write_text(f"Newsgroups: {group}\n\nThe {subject} isn't {'so ' * number}bad", encoding="latin-1")


def write_claims(folder: Path) -> None:
    rows = [
        f"{'' if row % 7 == 0 else row % 50},{'driver' if row % 3 else 'third party'},{'yes' if row % 3 else 'no'}"
        for row in range(160)
    ]
    (folder / "claims.csv").write_text("age,fault,fraud\n" + "\n".join(rows))


@pytest.fixture(scope="module")
def trained(digits: Any, made_once: MadeOnce) -> dict[str, Bundle]:
    """A bundle of each kind, all below one folder; the photos are digits whose images may be of any size."""

    def make(root: Path) -> None:
        data = root / "data"
        data.mkdir()
        write_posts(data)
        write_claims(data)
        posts = TrainConfig(
            dataset="newsgroups20",
            model="text_cnn",
            name="posts",
            data=data,
            data_settings={"length": 12, "vocabulary_size": 60},
            train_rows=60,
            reference_rows=40,
            test_rows=20,
            stratified=True,
            epochs=1,
            calibrator="identity",
        )
        claims = TrainConfig(
            dataset="table",
            model="table_cnn",
            name="claims",
            data=data,
            data_settings={"file": "claims.csv", "label": "fraud"},
            train_rows=0,
            reference_rows=60,
            epochs=1,
            calibrator="identity",
        )
        own = digits.bundle
        photos = contents(own, model=PHOTOS, input=own.manifest.input.model_copy(update={"resize": True}))
        for each in (posts, claims):
            train_bundle(each, root / "kinds", allow_poor=True)
        bundles.write(root / "kinds", photos)

    root = made_once("kinds", make) / "kinds"
    return {name: bundles.verify(root / name / "1") for name in ("posts", "claims", PHOTOS)}


@pytest.fixture(scope="module")
def served(launch: Callable[..., Any], trained: dict[str, Bundle], tmp_path_factory: Any) -> Iterator[Any]:
    root = next(iter(trained.values())).path.parents[1]
    running = launch(tmp_path_factory.mktemp("state"), bundles=root, policies=None)
    yield running
    running.close()


def ask(served: Any, model: str, **request: Any) -> httpx.Response:
    return served.http.post(f"/v1/models/{model}/predict", **request)


def matches(response: httpx.Response, bundle: Bundle, inputs: np.ndarray) -> list[dict[str, Any]]:
    """Check an answer against the bundle's own model on `inputs`, and return its predictions."""
    assert response.status_code == 200, response.text
    logits = ort.InferenceSession(bundle.model_bytes).run(["logits"], {"input": inputs})[0]
    expected = bundle.calibrator.predict_proba(logits)
    predictions = response.json()["predictions"]
    found = [[row["probabilities"][label] for label in bundle.manifest.labels] for row in predictions]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    return predictions


def refusal(response: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    document = response.json()
    assert document["type"] == f"/errors/{kind}", document
    assert {"detail", "found", "expected"} <= document.keys(), document
    return document


class TestTexts:
    TEXTS = ("The recautos isn't so bad", "THE SCI-SPACE; isn’t", "", "größer 42 " * 400)

    def test_texts_are_read_by_the_vocabulary_of_the_bundle(self, served: Any, trained: dict[str, Bundle]) -> None:
        bundle = trained["posts"]
        assert bundle.vocabulary is not None
        tokens = bundle.vocabulary.encode(self.TEXTS)
        assert (tokens > 1).any(), "a text has words that the model knows"
        names = ["a", None, "c", "d"]
        as_json = ask(served, "posts", json={"inputs": self.TEXTS, "references": names})
        assert [row["reference"] for row in matches(as_json, bundle, tokens)] == names
        files = [("inputs", (None, text.encode())) for text in self.TEXTS]
        matches(ask(served, "posts", files=files), bundle, tokens)
        plain = {"content-type": "text/plain"}
        matches(ask(served, "posts", content=self.TEXTS[1].encode(), headers=plain), bundle, tokens[1:2])
        matches(ask(served, "posts", json={"inputs": tokens.tolist()}), bundle, tokens)

    @pytest.mark.parametrize(
        ("request_", "status", "kind", "where"),
        [
            ({"json": {"inputs": ["a", 5]}}, 422, "input-type", "/inputs/1"),
            ({"json": {"inputs": ["a", ["b"]]}}, 422, "input-type", "/inputs/1"),
            ({"json": {"inputs": [{"text": "a"}]}}, 422, "input-type", "/inputs/0"),
            ({"json": {"inputs": "a"}}, 422, "input-type", "/inputs"),
            ({"json": {"inputs": ["a"] * 1025}}, 422, "input-shape", "/inputs"),
            ({"json": {"inputs": ["a"], "references": ["x", "y"]}}, 422, "input-shape", "/references"),
            ({"content": b"\xff", "headers": {"content-type": "text/plain"}}, 400, "malformed-body", "/inputs/0"),
            ({"content": b"x", "headers": {"content-type": "image/png"}}, 415, "unsupported-media-type", None),
            ({"files": [("inputs", (None, b"a")), ("inputs", (None, b"\xff"))]}, 400, "malformed-body", "/inputs/1"),
            ({"files": [("text", (None, b"a"))]}, 400, "malformed-body", "/text"),
            ({"files": [("references", (None, b"a"))]}, 422, "input-shape", "/inputs"),
        ],
    )
    def test_what_is_wrong_is_said(
        self, served: Any, request_: dict[str, Any], status: int, kind: str, where: str | None
    ) -> None:
        assert refusal(ask(served, "posts", **request_), status, kind).get("where") == where

    def test_the_text_of_a_megabyte_is_read_to_its_twelfth_word(self, served: Any, trained: dict[str, Bundle]) -> None:
        text = "the bad " * 120_000
        bundle = trained["posts"]
        assert bundle.vocabulary is not None
        matches(ask(served, "posts", json={"inputs": [text]}), bundle, bundle.vocabulary.encode([text]))


class TestRows:
    ROWS = (
        {"age": 41, "fault": "third party"},
        {"age": None, "fault": "driver"},
        {"fault": "nobody"},
        {"age": " 7.5 ", "fault": None},
        {"age": True, "fault": "driver"},
        {},
    )

    def test_rows_are_read_by_the_columns_of_the_bundle(self, served: Any, trained: dict[str, Bundle]) -> None:
        bundle = trained["claims"]
        assert bundle.columns is not None
        encoded = bundle.columns.encode(self.ROWS)
        assert np.isnan(encoded).any()
        names = list("abcdef")
        as_json = ask(served, "claims", json={"inputs": self.ROWS, "references": names})
        assert [row["reference"] for row in matches(as_json, bundle, encoded)] == names

    def test_what_is_missing_may_be_null_or_nan_in_arrays(self, served: Any, trained: dict[str, Bundle]) -> None:
        encoded = np.array([[41, 1], [np.nan, 2], [np.nan, np.nan]], np.float32)
        rows = [[41, 1], [None, 2], [None, None]]
        matches(ask(served, "claims", json={"inputs": rows}), trained["claims"], encoded)
        for dtype in (np.float32, np.float64):
            headers = {"content-type": "application/x-npy"}
            body = npy(encoded.astype(dtype))
            matches(ask(served, "claims", content=body, headers=headers), trained["claims"], encoded)

    @pytest.mark.parametrize(
        ("rows", "kind", "where", "found"),
        [
            ([{"age": 1}, {"aeg": 1}], "input-value", "/inputs/1", "aeg"),
            ([{"age": 1}, {"age": "old"}], "input-value", "/inputs/1", "'old'"),
            ([{"age": "inf"}], "input-value", "/inputs/0", "'inf'"),
            ([{"age": 1e300}], "input-value", "/inputs/0", "1e+300"),
            ([{"fault": True}], "input-type", "/inputs/0", "boolean"),
            ([{"fault": ["driver"]}], "input-type", "/inputs/0", "array"),
            ([{"age": 1}, [1, 2]], "input-type", "/inputs/1", "array"),
            ([[1, 2], {"age": 1}], "input-type", "/inputs/1", "values that are not numbers"),
            ([[1, "driver"]], "input-type", "/inputs/0", "values that are not numbers"),
            (["driver"], "input-type", "/inputs/0", "values that are not numbers"),
            ([[1, 2, 3]], "input-shape", "/inputs/0", [3]),
            ([[1, 1e300]], "input-value", "/inputs/0", "inf"),
            ([{}] * 1025, "input-shape", "/inputs", 1025),
        ],
    )
    def test_what_is_wrong_is_said(self, served: Any, rows: list[Any], kind: str, where: str, found: Any) -> None:
        document = refusal(ask(served, "claims", json={"inputs": rows}), 422, kind)
        assert (document["where"], document["found"]) == (where, found)

    def test_a_labelled_row_is_learned_from(self, served: Any) -> None:
        answer = ask(served, "claims", json={"inputs": [{"age": None}], "references": ["claim-7"]}).json()
        label = answer["predictions"][0]["label"]
        assert served.runtime.log.flush()
        body = {"items": [{"reference": "claim-7", "label": label}]}
        assert served.http.post("/v1/models/claims/feedback", json=body).json()["stored"] == 1


def encoded(image: Image.Image, format_: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format_, **options)
    return stream.getvalue()


def photo(width: int, height: int, mode: str) -> Image.Image:
    channels = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4}[mode]
    pixels = RANDOM.integers(0, 256, (height, width, channels), dtype=np.uint8)
    return Image.fromarray(pixels[..., 0] if channels == 1 else pixels, mode)


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    return exif


class TestPhotos:
    def files(self) -> list[bytes]:
        """Grey, colour, alpha, turned by EXIF, of three formats and of many sizes."""
        return [
            encoded(photo(8, 8, "L"), "PNG"),
            encoded(photo(40, 30, "RGB"), "JPEG"),
            encoded(photo(31, 64, "RGB"), "JPEG", exif=turned(6)),
            encoded(photo(33, 17, "RGBA"), "WEBP", lossless=True),
            encoded(photo(5, 9, "LA"), "PNG"),
        ]

    def test_many_images_come_as_a_form_or_as_base64(self, served: Any, trained: dict[str, Bundle]) -> None:
        files, bundle = self.files(), trained[PHOTOS]
        pixels = np.stack([decode_image(file, bundle.manifest.input, max_pixels=PIXELS) for file in files])
        form = [("inputs", (f"{index}.bin", file)) for index, file in enumerate(files)]
        names = {"references": list("abcde")}
        answer = ask(served, PHOTOS, files=form, data=names)
        assert [row["reference"] for row in matches(answer, bundle, pixels)] == names["references"]
        texts = [base64.b64encode(file).decode() for file in files]
        matches(ask(served, PHOTOS, json={"inputs": texts}), bundle, pixels)
        for file, row in zip(files, pixels, strict=True):
            media = {b"\x89PN": "image/png", b"RIF": "image/webp"}.get(file[:3], "image/jpeg")
            matches(ask(served, PHOTOS, content=file, headers={"content-type": media}), bundle, row[None])

    def test_without_leave_to_resize_another_size_is_refused_and_named(self, shared: Any) -> None:
        right, wrong = encoded(photo(8, 8, "L"), "PNG"), encoded(photo(9, 8, "L"), "PNG")
        form = [("inputs", ("a.png", right)), ("inputs", ("b.png", wrong))]
        document = refusal(shared.http.post("/predict", files=form), 422, "input-value")
        assert (document["where"], document["found"]) == ("/inputs/1", "9 × 8 pixels")
        texts = [base64.b64encode(file).decode() for file in (wrong, right)]
        assert refusal(shared.http.post("/predict", json={"inputs": texts}), 422, "input-value")["where"] == "/inputs/0"

    def test_pixels_are_limited_for_all_images_together(self, served: Any) -> None:
        black = encoded(Image.new("L", (3000, 3000)), "PNG")
        form = [("inputs", ("a.png", black)), ("inputs", ("b.png", black))]
        assert ask(served, PHOTOS, files=form[:1]).status_code == 200
        document = refusal(ask(served, PHOTOS, files=form), 422, "input-value")
        assert (document["where"], document["expected"]) == ("/inputs/1", "at most 16000000")
        assert "CANDOR_MAX_PIXELS" in document["remedy"]

    @pytest.mark.parametrize(
        ("inputs", "where", "found"),
        [
            (["@@@@"], "/inputs/0", "@@@@"),
            (["Zm9v", "Zm9"], "/inputs/1", "Zm9"),
            ([""], "/inputs/0", "no bytes"),
            (["Zm9v"], "/inputs/0", "3 bytes that begin with 66 6f 6f"),
            (["data:image/png;base64,é"], "/inputs/0", "data:image/png;base64,é"),
        ],
    )
    def test_base64_that_is_none(self, served: Any, inputs: list[str], where: str, found: str) -> None:
        document = refusal(ask(served, PHOTOS, json={"inputs": inputs}), 422, "input-value")
        assert (document["where"], document["found"]) == (where, found)

    def test_a_text_is_no_array_of_pixels(self, served: Any) -> None:
        document = refusal(ask(served, PHOTOS, json={"inputs": [[["1"] * 8] * 8]}), 422, "input-type")
        assert document["where"] == "/inputs/0"


HEADERS = {"content-type": "multipart/form-data; boundary=b"}


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", "multipart/form-data; boundary=b"),
        (b"x", "multipart/form-data; boundary=b"),
        (b"--b", "multipart/form-data; boundary=b"),
        (b'--b\r\nContent-Disposition: form-data; name="inputs"\r\n\r\nx', "multipart/form-data; boundary=b"),
        (b'--b\r\nContent-Disposition: form-data; name="inputs"\r\nx\r\n--b--', "multipart/form-data; boundary=b"),
        (b"--b\r\n\r\nx\r\n--b--", "multipart/form-data; boundary=b"),
        (b"--b\r\nContent-Disposition: attachment\r\n\r\nx\r\n--b--", "multipart/form-data; boundary=b"),
        (b"--b--", "multipart/form-data"),
        (b"--b--", "multipart/form-data; boundary="),
        (b"--b--", f"multipart/form-data; boundary={'b' * 71}"),
        (b"--bX\r\n\r\nx\r\n--b--", "multipart/form-data; boundary=b"),
        (b"--b\r\n" * 5000, "multipart/form-data; boundary=b"),
    ],
)
def test_forms_that_are_none(shared: Any, body: bytes, content_type: str) -> None:
    refusal(shared.http.post("/predict", content=body, headers={"content-type": content_type}), 400, "malformed-body")


def test_models_say_what_they_read(served: Any, trained: dict[str, Bundle]) -> None:
    items = {item["model"]: item for item in served.http.get("/v1/models").json()["items"]}
    assert {name: item["input"]["kind"] for name, item in items.items()} == {
        "posts": "tokens",
        "claims": "array",
        PHOTOS: "image",
    }
    assert {name: item["columns"] for name, item in items.items()} == {
        "posts": None,
        "claims": ["age", "fault"],
        PHOTOS: None,
    }
    assert [name for name, item in items.items() if item["texts"]] == ["posts"]


@pytest.mark.parametrize("top", [None, 0, 1, 3])
def test_probabilities_come_all_or_the_largest_or_not_at_all(shared: Any, digits: Any, top: int | None) -> None:
    query = {} if top is None else {"top": top}
    answer = shared.http.post("/predict", json={"inputs": digits.images[:5].tolist()}, params=query).json()
    for row in answer["predictions"]:
        shown = list(row["probabilities"].values())
        assert len(shown) == (10 if top is None else top)
        assert top is None or shown == sorted(shown, reverse=True)
        if top:
            assert (next(iter(row["probabilities"])), shown[0]) == (row["label"], row["confidence"])


@pytest.mark.parametrize(
    ("given", "kept"), [("order-7/a", True), ("x" * 128, True), ("x" * 129, False), ("two words", False)]
)
def test_request_ids_come_back_with_answers_and_with_problems(shared: Any, given: str, kept: bool) -> None:
    for body, status in ((encode_png(np.zeros((8, 8, 1), np.uint8)), 200), (b"no image", 422)):
        headers = {"content-type": "image/png", "x-request-id": given}
        response = shared.http.post("/predict", content=body, headers=headers)
        assert response.status_code == status
        assert (response.headers["x-request-id"] == given) is kept
        assert kept or re.fullmatch(r"[0-9A-Z]{26}-[0-9]+", response.headers["x-request-id"])


def test_decoding_does_not_queue_without_end(start: Any, digits: Any) -> None:
    """Eight of the largest bodies may wait to be decoded; then the service says so at once."""
    file = encode_png(digits.images[0])
    service = start(max_body_bytes=len(file))
    decoders = service.application._decoders
    decoders._waiting_bytes = 8 * len(file)
    response = service.http.post("/predict", content=file, headers={"content-type": "image/png"})
    assert refusal(response, 503, "overloaded")["found"] == f"{8 * len(file)} bytes waiting"
    assert response.headers["retry-after"]
    decoders._waiting_bytes = 0
    assert service.http.post("/predict", content=file, headers={"content-type": "image/png"}).status_code == 200


def test_a_digit_that_is_turned_by_exif_is_read_upright(served: Any, digits: Any) -> None:
    image = Image.fromarray(digits.images[0][..., 0])
    upright = ask(served, PHOTOS, content=encoded(image, "PNG"), headers={"content-type": "image/png"}).json()
    sideways = image.transpose(Image.Transpose.ROTATE_90)
    file = encoded(sideways, "PNG", exif=turned(6))
    righted = ask(served, PHOTOS, content=file, headers={"content-type": "image/png"}).json()
    assert righted["predictions"][0]["probabilities"] == upright["predictions"][0]["probabilities"]


def test_a_bundle_without_an_encoder_says_so(
    launch: Callable[..., Any], trained: dict[str, Bundle], tmp_path: Path
) -> None:
    """The same models, exported without their vocabulary and columns: arrays only, and no value may be missing."""
    for name in ("posts", "claims"):
        found = trained[name]
        bundles.write(tmp_path / "bare", contents(found, golden=replace(found.golden, texts=())))
    service = launch(tmp_path, bundles=tmp_path / "bare", policies=None)
    try:
        assert "vocabulary" in refusal(ask(service, "posts", json={"inputs": ["a"]}), 422, "input-type")["detail"]
        assert "columns" in refusal(ask(service, "claims", json={"inputs": [{"age": 1}]}), 422, "input-type")["detail"]
        refusal(ask(service, "claims", json={"inputs": [[None, 1]]}), 422, "input-type")
        assert ask(service, "claims", json={"inputs": [[1, 1]]}).status_code == 200
        assert ask(service, "posts", json={"inputs": [[0] * 12]}).status_code == 200
    finally:
        service.close()


def test_the_client_sends_texts_rows_and_photos(served: Any, trained: dict[str, Bundle], tmp_path: Path) -> None:
    texts, file = list(TestTexts.TEXTS), tmp_path / "post.txt"
    file.write_text(texts[0], encoding="utf-8")
    with Client(served.url, model="posts") as candor:
        answers = [candor.predict(texts), candor.predict_file(file)]
    assert answers[0].predictions[0].probabilities == answers[1].predictions[0].probabilities
    with Client(served.url, model="claims") as candor:
        assert [model.columns for model in candor.models()] == [("age", "fault"), None, None]
        rows = [{"age": 41, "fault": "driver"}, {"age": float("nan"), "fault": None}, {"age": np.float32(7)}]
        encoded = np.array([[41, 1], [np.nan, 0], [7, 0]], np.float32)
        columns = trained["claims"].columns
        assert columns is not None
        encoded[0, 1] = columns.encode(rows)[0, 1]
        answers = [candor.predict(rows), candor.predict(encoded), candor.predict(encoded, groups=["a", "b", "c"])]
        found = [[row.confidence for row in answer.predictions] for answer in answers]
        np.testing.assert_allclose(found, [found[0]] * 3, atol=1e-6)
    with Client(served.url, model=PHOTOS) as candor:
        assert len(candor.predict_images(TestPhotos().files()).predictions) == 5


def test_what_the_documentation_shows_is_answered(shared: Any, served: Any) -> None:
    operations = shared.http.get("/openapi.json").json()["paths"]
    content = operations["/v1/models/{model}/predict"]["post"]["requestBody"]["content"]
    examples = {name: example["value"] for name, example in content["application/json"]["examples"].items()}
    seven = [shared.http.post("/predict", json=examples.pop(name)).json() for name in ("arrays", "images")]
    assert [row["label"] for answer in seven for row in answer["predictions"]] == ["7", "7"]
    for model, name in (("posts", "texts"), ("claims", "rows")):
        response = ask(served, model, json=examples.pop(name))
        assert response.status_code == 200, response.text
        assert len(response.json()["predictions"]) == 2
    assert examples.keys() == {"tensors", "scores"}  # asked of imported models
    media_types = {kind for model in served.runtime.models.all() for kind in MEDIA_TYPES[model.served.input.kind]}
    assert set(content) == media_types


def test_the_open_inference_protocol_reads_every_kind(served: Any, trained: dict[str, Bundle]) -> None:
    def probabilities(client: Any, model: str, array: np.ndarray, datatype: str, *, binary: bool = True) -> np.ndarray:
        tensor = triton.InferInput("input", list(array.shape), datatype)
        tensor.set_data_from_numpy(array, binary_data=binary)
        return client.infer(model, [tensor]).as_numpy("probabilities")

    def expected(bundle: Bundle, inputs: np.ndarray) -> np.ndarray:
        logits = ort.InferenceSession(bundle.model_bytes).run(["logits"], {"input": inputs})[0]
        return bundle.calibrator.predict_proba(logits)

    texts = np.array(TestTexts.TEXTS, dtype=object)
    posts, claims, photos = trained["posts"], trained["claims"], trained[PHOTOS]
    assert posts.vocabulary is not None
    tokens = posts.vocabulary.encode(TestTexts.TEXTS)
    rows = np.array([[41, 1], [np.nan, 0], [7, 2]], np.float32)
    files = TestPhotos().files()
    pixels = np.stack([decode_image(file, photos.manifest.input, max_pixels=PIXELS) for file in files])
    with triton.InferenceServerClient(served.url.removeprefix("http://")) as client:
        assert client.get_model_metadata("posts")["inputs"][0] == {
            "name": "input",
            "datatype": "INT32",
            "shape": [-1, 12],
        }
        found = [
            (posts, tokens, probabilities(client, "posts", texts, "BYTES")),
            (posts, tokens, probabilities(client, "posts", texts, "BYTES", binary=False)),
            (posts, tokens, probabilities(client, "posts", tokens.astype(np.int64), "INT64")),
            (posts, tokens, probabilities(client, "posts", tokens, "INT32", binary=False)),
            (claims, rows, probabilities(client, "claims", rows, "FP32")),
            (claims, rows, probabilities(client, "claims", rows.astype(np.float64), "FP64")),
            (claims, rows, probabilities(client, "claims", rows.astype(np.float16), "FP16")),
            (claims, rows[:1], probabilities(client, "claims", rows[:1].astype(np.int16), "INT16", binary=False)),
            (photos, pixels, probabilities(client, PHOTOS, np.array(files, dtype=object), "BYTES")),
            (photos, pixels, probabilities(client, PHOTOS, pixels, "UINT8")),
        ]
        for bundle, inputs, given in found:
            np.testing.assert_allclose(given, expected(bundle, inputs), atol=1e-5)
        encoded = np.array([base64.b64encode(file).decode() for file in files], dtype=object)
        given = probabilities(client, PHOTOS, encoded, "BYTES", binary=False)
        np.testing.assert_allclose(given, expected(photos, pixels), atol=1e-5)
        with pytest.raises(InferenceServerException, match="row 1 of /inputs/0"):
            probabilities(client, "claims", np.array([[1, 1], [np.inf, 1]], np.float32), "FP32")
        with pytest.raises(InferenceServerException, match="row 1 of /inputs/0"):
            probabilities(client, PHOTOS, np.array([files[0], b"no image"], dtype=object), "BYTES")
        with pytest.raises(InferenceServerException, match="The model takes FP32"):
            probabilities(client, "claims", texts, "BYTES")
