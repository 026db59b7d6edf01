"""Exit 0 if the service in this container is ready, else 1 with the reason (standard library only).

An argument is another path than /readyz. With TLS it speaks to the service beside it, whose certificate is not checked:
the name in it is that of the service, not of this address. To a service that requires certificates of its clients it
shows the one in HEALTHCHECK_CERT and HEALTHCHECK_KEY, else the service's own.
"""

from __future__ import annotations

import http.client
import os
import ssl
import sys

given = os.environ
try:
    connection = http.client.HTTPConnection("127.0.0.1", int(given.get("CANDOR_PORT", "8000")), timeout=2.5)
    if "CANDOR_TLS_CERT" in given:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if "CANDOR_TLS_CLIENT_CA" in given:
            own = given["CANDOR_TLS_CERT"], given["CANDOR_TLS_KEY"]
            context.load_cert_chain(given.get("HEALTHCHECK_CERT", own[0]), given.get("HEALTHCHECK_KEY", own[1]))
        connection = http.client.HTTPSConnection(connection.host, connection.port, timeout=2.5, context=context)
    connection.request("GET", sys.argv[1] if len(sys.argv) > 1 else "/readyz")
    response = connection.getresponse()
    status, body = response.status, response.read(2000).decode("utf-8", "replace")
except (OSError, http.client.HTTPException) as error:
    status, body = 0, f"no answer: {error}"
sys.stdout.write(body)
sys.exit(status != 200)
