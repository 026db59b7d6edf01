"""Predict an image of a seven and a batch of noise with Triton's client.

Run `make serve` in another terminal, then `python examples/tritonclient/infer.py --policy auto-read`. It requires
only `pip install 'tritonclient[http]'`.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import tritonclient.http as triton

SEVEN = Path(__file__).parents[1] / "seven.png"


def main() -> None:
    """Print the model's metadata and its predictions."""
    options = argparse.ArgumentParser(description="Triton's client against Candor.")
    options.add_argument("--url", default="127.0.0.1:8000", help="host:port, without http://")
    options.add_argument("--model", default="digits")
    options.add_argument("--policy", help="policy that decides")
    options.add_argument("--image", type=Path, default=SEVEN)
    given = options.parse_args()
    key = os.environ.get("CANDOR_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}

    with triton.InferenceServerClient(given.url) as client:
        metadata = client.get_model_metadata(given.model, headers=headers)
        (expected,) = metadata["inputs"]
        print(f"{given.model}, versions {metadata['versions']}: {expected['datatype']} {expected['shape']}")

        # An encoded image is one element of a BYTES tensor; the service decodes it.
        picture = triton.InferInput("input", [1], "BYTES")
        picture.set_data_from_numpy(np.array([given.image.read_bytes()], dtype=np.object_))
        outputs = [
            triton.InferRequestedOutput("probabilities", class_count=3),
            triton.InferRequestedOutput("decision"),
        ]
        parameters = {"policy": given.policy} if given.policy else None
        answer = client.infer(given.model, [picture], outputs=outputs, parameters=parameters, headers=dict(headers))
        for text in answer.as_numpy("probabilities")[0]:
            probability, _, label = text.decode().split(":", 2)
            print(f"  {label}: {float(probability):.1%}")
        print(f"  decision: {answer.as_numpy('decision')[0].decode() or 'none'}")
        print(f"  id for feedback: {answer.get_response()['parameters']['prediction_ids']}")

        # Arrays are sent in binary, compressed in both directions here. References for feedback, `groups` and
        # `segments` are further inputs.
        _, *shape = expected["shape"]
        noise = np.random.default_rng(0).integers(0, 256, (32, *shape)).astype(np.uint8)
        batch = triton.InferInput("input", list(noise.shape), "UINT8")
        batch.set_data_from_numpy(noise)
        names = triton.InferInput("references", [len(noise)], "BYTES")
        names.set_data_from_numpy(np.array([f"noise-{row}" for row in range(len(noise))], dtype=np.object_))
        answer = client.infer(
            given.model,
            [batch, names],
            headers=dict(headers),
            request_compression_algorithm="gzip",
            response_compression_algorithm="gzip",
        )
        print(f"mean confidence on {len(noise)} rows of noise: {answer.as_numpy('confidence').mean():.1%}")


if __name__ == "__main__":
    main()
