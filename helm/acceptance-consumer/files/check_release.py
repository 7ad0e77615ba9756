"""Ask every pod behind a headless service whether it is ready and has metrics: HOST PORT [SECONDS].

Needs the standard library only, and waits, two minutes at most, for pods that start.
"""

import socket
import sys
import time
import urllib.request
from http.client import HTTPException

host, port = sys.argv[1], int(sys.argv[2])
patience = float(sys.argv[3]) if sys.argv[3:] else 120.0
deadline = time.monotonic() + patience


def look() -> list[str]:
    """Return the pods that were asked; raises OSError or HTTPException for one that is not well."""
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
        print(f"ready: {', '.join(look())}")
        break
    except (OSError, HTTPException) as error:
        if time.monotonic() > deadline:
            sys.exit(f"not ready: {error}")
        time.sleep(2)
