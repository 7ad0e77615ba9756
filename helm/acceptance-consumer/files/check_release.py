"""Check that every pod behind a headless service is ready and has metrics.

Arguments: HOST PORT [SECONDS]. Waits SECONDS, two minutes by default, for pods that are starting.
Needs only the standard library.
"""

import socket
import sys
import time
import urllib.request
from http.client import HTTPException

host, port = sys.argv[1], int(sys.argv[2])
deadline = time.monotonic() + (float(sys.argv[3]) if sys.argv[3:] else 120.0)


def check_pods() -> list[str]:
    """Return the addresses of the pods; raise OSError or HTTPException if one is not ready."""
    addresses = sorted(
        {info[4][0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    )
    for address in addresses:
        authority = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        for path in ("/healthz", "/readyz", "/metrics"):
            with urllib.request.urlopen(f"http://{authority}{path}", timeout=5) as answer:
                body = answer.read()
            if path == "/metrics" and b"\n# TYPE " not in b"\n" + body:
                raise OSError(f"http://{authority}{path} has no metrics")
    return addresses


while True:
    try:
        print(f"ready: {', '.join(check_pods())}")
        break
    except (OSError, HTTPException) as error:
        if time.monotonic() > deadline:
            sys.exit(f"not ready: {error}")
        time.sleep(2)
