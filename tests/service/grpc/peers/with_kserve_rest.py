"""KServe's own REST client, V1 and V2, run by `test_peers.py` in the Python that has it.

    python with_kserve_rest.py URL IMAGES KEY

IMAGES is a file of NumPy with uint8 of shape (N, 8, 8, 1). Prints what the service answers, as JSON.
"""

import asyncio
import json
import sys

import httpx
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig


async def main(url: str, file: str, key: str) -> dict[str, object]:
    images = np.load(file)
    headers = {"authorization": f"Bearer {key}"}
    v1, v2 = (InferenceRESTClient(RESTConfig(protocol=protocol, retries=0)) for protocol in ("v1", "v2"))
    instances = {"instances": images.tolist()}
    answer = await v1.infer(url, instances, model_name="digits", headers=headers)
    tensor = InferInput("input", list(images.shape), "UINT8")
    tensor.set_data_from_numpy(images, binary_data=True)
    request = InferRequest("digits", [tensor], parameters={"policy": "auto-read"})
    response = await v2.infer(url, request, model_name="digits", headers=dict(headers))
    outputs = {output.name: output for output in response.outputs}
    try:
        await v1.infer(url, instances, model_name="digits")
    except httpx.HTTPStatusError as error:
        refused = error.response.status_code
    return {
        "live": await v2.is_server_live(url),
        "ready": await v2.is_server_ready(url),
        "model": await v1.is_model_ready(url, "digits", headers=headers),
        "raw": outputs["probabilities"].as_numpy().tolist(),
        "typed": answer["predictions"],
        "decisions": list(outputs["decision"].as_numpy().tolist()),
        "without a key": {401: "UNAUTHENTICATED"}.get(refused, refused),
    }


print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
