"""Exit 0 if the service in this container is ready, else 1 with the reason (standard library only).

An argument is another path than /readyz. With CANDOR_UDS it asks over that socket. With TLS it speaks to the service
beside it, whose certificate is not checked: the name in it is that of the service, not of this address. To a service
that requires certificates of its clients it shows the one in HEALTHCHECK_CERT and HEALTHCHECK_KEY, else the service's
own.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import sys

given = {name: value for name, value in os.environ.items() if value}
try:
    port = int(given.get("CANDOR_PORT", "8000"))
    if "CANDOR_UDS" in given:
        connected = socket.socket(socket.AF_UNIX)
        connected.settimeout(2.5)
        connected.connect(given["CANDOR_UDS"])
    else:
        connected = socket.create_connection(("127.0.0.1", port), timeout=2.5)
    if "CANDOR_TLS_CERT" in given:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if "CANDOR_TLS_CLIENT_CA" in given:
            own = given["CANDOR_TLS_CERT"], given["CANDOR_TLS_KEY"]
            context.load_cert_chain(given.get("HEALTHCHECK_CERT", own[0]), given.get("HEALTHCHECK_KEY", own[1]))
        connected = context.wrap_socket(connected)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.sock = connected
    connection.request("GET", sys.argv[1] if len(sys.argv) > 1 else "/readyz")
    response = connection.getresponse()
    status, body = response.status, response.read(2000).decode("utf-8", "replace")
except KeyError as missing:
    status, body = 0, f"no answer: {missing.args[0]} is not set"
except (OSError, ValueError, http.client.HTTPException) as error:
    status, body = 0, f"no answer: {error}"
sys.stdout.write(body)
sys.exit(status != 200)
