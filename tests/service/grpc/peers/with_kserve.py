"""KServe's own client, run by `test_peers.py` in the Python that has it.

    python with_kserve.py ADDRESS IMAGES KEY

IMAGES is a file of NumPy with uint8 of shape (N, 8, 8, 1). Prints what the service answers, as JSON.
"""

import asyncio
import json
import sys

import grpc
import numpy as np
from kserve import InferenceGRPCClient, InferInput, InferRequest


async def main(address: str, file: str, key: str) -> dict[str, object]:
    images = np.load(file)
    headers = (("authorization", f"Bearer {key}"),)
    async with InferenceGRPCClient(address) as client:
        found: dict[str, object] = {
            "live": await client.is_server_live(),
            "ready": await client.is_server_ready(),
            "model": await client.is_model_ready("digits", headers=headers),
        }
        for binary in (True, False):
            tensor = InferInput("input", list(images.shape), "UINT8")
            tensor.set_data_from_numpy(images, binary_data=binary)
            request = InferRequest("digits", [tensor], parameters={"policy": "auto-read"})
            answer = await client.infer(request, headers=headers)
            outputs = {output.name: output for output in answer.outputs}
            found["raw" if binary else "typed"] = outputs["probabilities"].as_numpy().tolist()
            found["decisions"] = [text.decode() for text in outputs["decision"].as_numpy().tolist()]
        try:
            await client.infer(request)
        except grpc.RpcError as error:
            found["without a key"] = error.code().name
    return found


print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
