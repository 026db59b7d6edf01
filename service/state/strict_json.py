"""Standard JSON for storage."""

from __future__ import annotations

import json
from typing import Any


def strict_json(value: Any) -> str:
    """Return compact JSON.

    Raises:
        ValueError: A number is NaN or infinite, which JSON does not allow.

    Example:
        >>> strict_json({"at_least": 0.95, "looks": [1, 2]})
        '{"at_least":0.95,"looks":[1,2]}'
    """
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
