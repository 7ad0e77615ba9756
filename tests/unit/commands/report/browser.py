"""A real browser without window, spoken to in its own protocol over two pipes.

Needs no driver: any Chromium of the last years will do, and is asked for by `CHROMIUM` or found on
the path.
"""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

Json = dict[str, Any]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_MOBILE_BELOW = 600


def found_browser() -> str | None:
    """Return the path of a browser, if there is one."""
    given = os.environ.get("CHROMIUM")
    return given or next((path for name in _NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page in a browser.

    Attributes:
        complaints: what the browser says of the page: violations of its policy, errors.
        requests: addresses that the page has asked for.

    """

    def __init__(self, to_browser: IO[bytes], from_browser: IO[bytes]) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._to, self._from = to_browser, from_browser
        self._calls = 0
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Json:
        """Have something done, and return the answer."""
        self._calls += 1
        call = {"id": self._calls, "method": method, "params": parameters}
        if self._session is not None:
            call["sessionId"] = self._session
        self._to.write(json.dumps(call).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self._calls:
                assert "error" not in message, f"{method}: {message['error']}"
                result: Json = message["result"]
                return result

    def show(self, path: Path, width: int, scheme: str, height: int = 844) -> None:
        """Open a file on a screen of a width, in the scheme "light" or "dark"."""
        mobile = width < _MOBILE_BELOW
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.call("Page.navigate", url=path.as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def value(self, expression: str) -> Any:
        """Return what an expression of JavaScript gives, which the page's policy does not bind."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def point_at(self, x: float, y: float) -> None:
        """Move the mouse."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def _next(self) -> Json:
        text = bytearray()
        while (byte := self._from.read(1)) != b"\0":
            assert byte, "the browser has ended"
            text += byte
        message: Json = json.loads(text)
        parameters = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(parameters["entry"]["text"])
            case "Runtime.exceptionThrown" | "Audits.issueAdded":
                self.complaints.append(json.dumps(parameters))
        return message


@contextmanager
def browsing(program: str) -> Iterator[Browser]:
    """Run a browser for as long as the block lasts."""
    to_child, to_browser = os.pipe()
    from_browser, from_child = os.pipe()
    # It reads what is said to it from file 3, and answers to file 4.
    moves = [
        (os.POSIX_SPAWN_DUP2, to_child, 100),
        (os.POSIX_SPAWN_DUP2, from_child, 101),
        (os.POSIX_SPAWN_DUP2, 100, 3),
        (os.POSIX_SPAWN_DUP2, 101, 4),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        os.fdopen(to_browser, "wb", buffering=0) as to,
        os.fdopen(from_browser, "rb") as answers,
    ):
        options = [
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",  # Containers forbid it; only pages of these tests are shown.
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={profile}",
        ]
        process = os.posix_spawn(program, [program, *options], os.environ, file_actions=moves)
        os.close(to_child)
        os.close(from_child)
        try:
            yield Browser(to, answers)
        finally:
            os.kill(process, signal.SIGTERM)
            os.waitpid(process, 0)
