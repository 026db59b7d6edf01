"""Many predictions at once with the asynchronous client, against the digits of `make serve`.

    .venv/bin/python examples/python/concurrent_predictions.py

The service batches concurrent requests itself, so send each image alone.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path

from candor import DEFAULT_URL, AsyncClient
from candor.contract.predictions import Prediction

SEVEN = Path(__file__).resolve().parents[1] / "seven.png"
AT_ONCE = 64


async def main() -> None:
    """Predict the same image many times and count the labels."""
    room = asyncio.Semaphore(AT_ONCE)
    image = SEVEN.read_bytes()
    async with AsyncClient(
        os.environ.get("CANDOR_URL", DEFAULT_URL), api_key=os.environ.get("CANDOR_API_KEY")
    ) as candor:

        async def predict() -> Prediction:
            async with room:
                return (await candor.predict_images([image], top=0)).predictions[0]

        predictions = await asyncio.gather(*(predict() for _ in range(200)))
    print(Counter(prediction.label for prediction in predictions))


if __name__ == "__main__":
    asyncio.run(main())
