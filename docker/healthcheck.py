"""Exit 0 if the service in this container is ready, else 1 with the reason (standard library only)."""

from __future__ import annotations

import http.client
import os
import sys

connection = http.client.HTTPConnection("127.0.0.1", int(os.environ.get("CANDOR_PORT", "8000")), timeout=2.5)
try:
    connection.request("GET", "/readyz")
    response = connection.getresponse()
    status, body = response.status, response.read(2000).decode("utf-8", "replace")
except (OSError, http.client.HTTPException) as error:
    status, body = 0, f"no answer: {error}"
sys.stdout.write(body)
sys.exit(status != 200)
