"""MLServer's own messages and generated stub, run by `test_peers.py` in the Python that has them.

    python with_mlserver.py ADDRESS IMAGES KEY

IMAGES is a file of NumPy with uint8 of shape (N, 8, 8, 1). Prints what the service answers, as JSON.
"""

import importlib.util
import json
import sys
import types

import grpc
import numpy as np

# The packages without the code of their __init__.py: that loads the server, whose requirements contradict KServe's.
(folder,) = importlib.util.find_spec("mlserver").submodule_search_locations
for name, path in (("mlserver", folder), ("mlserver.grpc", f"{folder}/grpc")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]

from mlserver.grpc.dataplane_pb2 import (  # noqa: E402
    InferParameter,
    InferTensorContents,
    ModelInferRequest,
    ModelReadyRequest,
    ServerLiveRequest,
    ServerReadyRequest,
)
from mlserver.grpc.dataplane_pb2_grpc import GRPCInferenceServiceStub  # noqa: E402


def main(address: str, file: str, key: str) -> dict[str, object]:
    images = np.load(file)
    metadata = (("authorization", f"Bearer {key}"),)
    with grpc.insecure_channel(address) as channel:
        stub = GRPCInferenceServiceStub(channel)
        found: dict[str, object] = {
            "live": stub.ServerLive(ServerLiveRequest()).live,
            "ready": stub.ServerReady(ServerReadyRequest()).ready,
            "model": stub.ModelReady(ModelReadyRequest(name="digits"), metadata=metadata).ready,
        }
        for binary in (True, False):
            tensor = ModelInferRequest.InferInputTensor(name="input", datatype="UINT8", shape=images.shape)
            request = ModelInferRequest(model_name="digits", inputs=[tensor])
            request.parameters["policy"].CopyFrom(InferParameter(string_param="auto-read"))
            if binary:
                request.raw_input_contents.append(images.tobytes())
            else:
                request.inputs[0].contents.CopyFrom(InferTensorContents(uint_contents=images.ravel().tolist()))
            answer = stub.ModelInfer(request, metadata=metadata)
            place = {output.name: at for at, output in enumerate(answer.outputs)}
            at, shape = place["probabilities"], answer.outputs[place["probabilities"]].shape
            values = (
                np.frombuffer(answer.raw_output_contents[at], np.float32)
                if binary
                else np.array(answer.outputs[at].contents.fp32_contents)
            )
            found["raw" if binary else "typed"] = values.reshape(shape).tolist()
        decisions = answer.outputs[place["decision"]].contents.bytes_contents
        found["decisions"] = [text.decode() for text in decisions]
        try:
            stub.ModelInfer(request)
        except grpc.RpcError as error:
            found["without a key"] = error.code().name
    return found


print(json.dumps(main(*sys.argv[1:])))
