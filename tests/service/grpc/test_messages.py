"""The protocol's messages: compiled as written, those of other projects, and every way to write contents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

from service.grpc import messages
from service.grpc.messages import message
from service.open_inference.datatypes import DATATYPES

from .conftest import Channel, address

FOLDER = Path(messages.__file__).parent
PEERS = sorted((Path(__file__).parent / "peers").glob("*.binpb"))  # the descriptors in their packages
# KServe's requests to load lack the first field of Triton's, and MLServer's metadata have parameters.
OTHERWISE = {"RepositoryModelLoadRequest.model_name", "RepositoryModelUnloadRequest.model_name"}


def test_the_descriptor_is_what_the_proto_compiles_to(tmp_path: Path) -> None:
    to = tmp_path / "open_inference.binpb"
    arguments = ["protoc", f"--proto_path={FOLDER}", f"--descriptor_set_out={to}", "open_inference.proto"]
    assert protoc.main(arguments) == 0
    assert to.read_bytes() == (FOLDER / to.name).read_bytes(), "run make protocol"


class Peer:
    """Messages as another project has compiled them."""

    def __init__(self, file: Path) -> None:
        self.pool = DescriptorPool()
        self.file = FileDescriptorProto.FromString(file.read_bytes())
        self.pool.Add(self.file)

    def message(self, name: str) -> Any:
        return GetMessageClass(self.pool.FindMessageTypeByName(f"inference.{name}"))


def fields(described: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for field in described.fields:
        kind = field.message_type.full_name if field.message_type else field.type
        yield f"{described.full_name.removeprefix('inference.')}.{field.name}", (field.number, kind, field.is_repeated)
        if field.message_type is not None and "google" not in field.message_type.full_name:
            yield from fields(field.message_type)


@pytest.fixture(params=PEERS, ids=lambda file: file.stem)
def peer(request: pytest.FixtureRequest) -> Peer:
    return Peer(request.param)


def test_fields_that_others_have_too_have_their_numbers_and_types(peer: Peer) -> None:
    shared = 0
    for entry in peer.file.message_type:
        try:
            own = messages.POOL.FindMessageTypeByName(f"inference.{entry.name}")
        except KeyError:
            continue
        ours = dict(fields(own))
        for name, described in fields(peer.message(entry.name).DESCRIPTOR):
            if name in ours and name not in OTHERWISE:
                assert ours[name] == described, name
                shared += 1
    assert shared > 50


@pytest.mark.parametrize("raw", [True, False])
def test_messages_of_others_are_answered_in_kind(peer: Peer, speaking: Any, digits: Any, raw: bool) -> None:
    """What KServe's and MLServer's clients send: the classes are built from the descriptors in their packages."""
    request = peer.message("ModelInferRequest")(model_name="digits", id="one")
    tensor = request.inputs.add(name="input", datatype="UINT8", shape=[2, 8, 8, 1])
    if raw:
        tensor.contents.SetInParent()  # as MLServer does
        request.raw_input_contents.append(digits.images[:2].tobytes())
    else:
        tensor.contents.uint_contents.extend(digits.images[:2].ravel().tolist())
    with grpc.insecure_channel(address(speaking)) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        answer = peer.message("ModelInferResponse").FromString(call(request.SerializeToString(), wait_for_ready=True))
        metadata = channel.unary_unary("/inference.GRPCInferenceService/ModelMetadata")
        asked = peer.message("ModelMetadataRequest")(name="digits").SerializeToString()
        assert peer.message("ModelMetadataResponse").FromString(metadata(asked)).inputs[0].datatype == "UINT8"
    assert (answer.id, [output.name for output in answer.outputs][-1]) == ("one", "decision")
    expected = speaking.http.post("/predict", json={"inputs": digits.images[:2].tolist()}).json()["predictions"]
    if raw:
        confidence = np.frombuffer(answer.raw_output_contents[2], np.float32)
    else:
        confidence = np.array(answer.outputs[2].contents.fp32_contents, np.float32)
        assert list(answer.outputs[3].contents.bytes_contents) == [b"", b""]
        assert not answer.raw_output_contents
    np.testing.assert_allclose(confidence, [one["confidence"] for one in expected], atol=1e-5)


def test_kserves_client_names_the_model_in_the_field_of_the_repository(call: Channel) -> None:
    (kserve,) = (Peer(file) for file in PEERS if file.stem.startswith("kserve"))
    request = kserve.message("RepositoryModelLoadRequest")(model_name="digits")
    method = call.channel.unary_unary("/inference.GRPCInferenceService/RepositoryModelLoad")
    answer = kserve.message("RepositoryModelLoadResponse").FromString(method(request.SerializeToString()))
    assert (answer.model_name, answer.isLoaded) == ("digits", True)


def infer(call: Channel, datatype: str, shape: list[int], *, raw: list[bytes] = [], **contents: Any) -> Any:  # noqa: B006
    given = {"name": "input", "datatype": datatype, "shape": shape}
    return call("ModelInfer", model_name="digits", inputs=[given | contents], raw_input_contents=raw)


def contents_of(datatype: str, image: np.ndarray) -> dict[str, Any]:
    kind = "uint" if datatype.startswith("U") else "fp" if datatype.startswith("F") else "int"
    size = datatype[-2:] if kind == "fp" or datatype.endswith("64") else ""
    return {f"{kind}{size}_contents": image.ravel().tolist()}


@pytest.mark.parametrize("datatype", DATATYPES)
def test_numbers_of_any_type_are_raw_or_typed(call: Channel, digits: Any, datatype: str) -> None:
    image = (digits.images[:1] // 2).astype(np.float32)  # up to 127: exact in 16 bits too
    bits = (image.view(np.uint32) >> 16) if datatype == "BF16" else image
    raw = infer(call, datatype, [1, 8, 8, 1], raw=[bits.astype(DATATYPES[datatype].dtype).tobytes()])
    whole = image.astype(np.uint8)
    typed = infer(call, "UINT8", [1, 8, 8, 1], contents=contents_of("UINT8", whole))
    if DATATYPES[datatype].code is not None:
        number = whole if DATATYPES[datatype].whole else image
        typed = infer(call, datatype, [1, 8, 8, 1], contents=contents_of(datatype, number))
    confidence = np.frombuffer(raw.raw_output_contents[2], np.float32)
    assert list(typed.outputs[2].contents.fp32_contents) == pytest.approx(confidence.tolist(), abs=1e-6)


@pytest.mark.parametrize(
    ("datatype", "shape", "given", "says"),
    [
        ("UINT8", [1, 8, 8, 1], {}, "Found: 0 values. Expected: 64 values"),
        ("UINT8", [1, 8, 8, 1], {"contents": {"uint_contents": [256] * 64}}, "not a valid UINT8"),
        ("UINT8", [1], {"contents": {"uint_contents": [1], "fp32_contents": [1.0]}}, "its values in `uint_contents`"),
        ("BYTES", [1], {"contents": {"bytes_contents": [b""], "int_contents": [1]}}, "its values in `bytes_contents`"),
        ("UINT8", [1, 8, 8, 1], {"raw": [bytes(63)]}, "Found: 63 bytes. Expected: 64 bytes"),
        ("UINT8", [1, 8, 8, 1], {"raw": [bytes(64), b""]}, "one entry per input tensor"),
        ("UINT8", [1], {"raw": [bytes(64)], "contents": {"uint_contents": [1]}}, "either `raw_input_contents` or"),
        ("FP16", [1, 8, 8, 1], {"contents": {"fp32_contents": [0] * 64}}, "requires raw contents"),
        ("FP32", [1, 8, 8, 1], {"contents": {"fp32_contents": [0.5] * 64}}, "row 0 of /inputs/0. Found: 0.5 (FP32)"),
        ("BF16", [1, 8, 8, 1], {"raw": [b"\0\x3f" * 64]}, "UINT8 cannot hold a value of the tensor"),
        ("UINT8", [1, 8, 8, 1], {"raw": [bytes(64)], "parameters": {"polcy": message("InferParameter")()}}, "Unknown"),
        ("UINT8", [-1, 8, 8, 1], {"raw": [bytes(64)]}, "integers of 0 or more"),
        ("BYTES", [1], {"contents": {"bytes_contents": [b"no image"]}}, "Where: row 0 of /inputs/0"),
        ("UINT8", [1], {"raw": [b""], "parameters": {"shared_memory_region": message("InferParameter")()}}, "Shared"),
    ],
)
def test_contents_that_cannot_be_used_are_refused_with_the_place(
    call: Channel, datatype: str, shape: list[int], given: dict[str, Any], says: str
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        infer(call, datatype, shape, **given)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert says in refused.value.details()


def test_images_are_sent_encoded(call: Channel, digits: Any) -> None:
    from bundle.images import encode_png

    encoded = [encode_png(image) for image in digits.images[:3]]
    typed = infer(call, "BYTES", [3], contents={"bytes_contents": encoded})
    plain = infer(call, "UINT8", [3, 8, 8, 1], raw=[digits.images[:3].tobytes()])
    confidence = np.frombuffer(plain.raw_output_contents[2], np.float32)
    assert list(typed.outputs[2].contents.fp32_contents) == pytest.approx(confidence.tolist(), abs=1e-6)


def test_bytes_that_are_no_message_are_refused(call: Channel) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        call.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(b"\xff\xff")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "ModelInferRequest" in refused.value.details()
