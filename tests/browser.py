"""A browser for tests: Chromium without a window, driven by its DevTools protocol.

Nobody has to install one: without it, the tests that need it are skipped, and say so.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import urllib.request
from base64 import b64decode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from websockets.sync.client import connect

from tests.waiting import eventually

__all__ = ["Browser", "Page", "open_browser"]

_MISSING = "Chromium is not installed, so the live board is not tested in a browser; docker/install-test-tools.sh helps"

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_LIMIT = 30.0  # seconds for an answer of the browser
_QUIET = (
    "--headless",
    "--remote-debugging-port=0",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-proxy-server",
)

_KEYS = {
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    "PageUp": 33,
    "PageDown": 34,
    "End": 35,
    "Home": 36,
    "ArrowUp": 38,
    "ArrowDown": 40,
}


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Open a browser, or skip the test."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip(_MISSING)
    with Browser(program) as browser:
        yield browser


class Browser:
    """A Chromium with a profile of its own."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="lvq-chromium-", ignore_cleanup_errors=True)
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        command = [program, *_QUIET, *sandbox, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        address = eventually(self._port_file, 60)
        self._debugging = f"http://127.0.0.1:{address}"

    def _port_file(self) -> str:
        path = Path(self._profile.name) / "DevToolsActivePort"
        return path.read_text().split("\n")[0] if path.exists() else ""

    def page(self, address: str, *, width: int = 1280, height: int = 800, dark: bool = False) -> Page:
        """Open a page."""
        request = urllib.request.Request(f"{self._debugging}/json/new?about:blank", method="PUT")
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=_LIMIT) as answer:
            page = Page(json.load(answer)["webSocketDebuggerUrl"])
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        page.go(address)
        return page

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._profile.cleanup()


class Page:
    """A page of a browser."""

    def __init__(self, address: str) -> None:
        self._opened = ExitStack()
        self._socket = self._opened.enter_context(connect(address, max_size=None, proxy=None, compression=None))
        self._number = 0
        self.faults: list[str] = []
        """Exceptions in the page, and what its policy has forbidden; not that a server is gone."""

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the DevTools protocol."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=_LIMIT))
            self._note(message)
            if message.get("id") == self._number:
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]

    def _note(self, message: dict[str, Any]) -> None:
        details = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.faults.append(str(details["exceptionDetails"]))
        elif message.get("method") == "Log.entryAdded":
            entry = details["entry"]
            if entry["level"] in ("error", "warning") and entry["source"] != "network":
                self.faults.append(entry["text"])

    def run(self, expression: str) -> Any:
        """Evaluate an expression, and return its value. It may await."""
        found = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, replMode=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def go(self, address: str) -> None:
        self.call("Page.navigate", url=address)
        eventually(lambda: self.run("document.readyState") == "complete", _LIMIT)

    def resize(self, width: int, height: int) -> None:
        small = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=small)
        self.call("Emulation.setTouchEmulationEnabled", enabled=small)

    def text(self, selector: str) -> str:
        """Return the text of an element; empty if it is not there, or hidden."""
        found = self.run(
            f"((found) => found?.checkVisibility() ? found.innerText : '')"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        return re.sub(r"\s+", " ", found).strip()

    def shows(self, selector: str, text: str, timeout: float = 20) -> None:
        """Wait until an element shows a text, which does not begin or end within a word or number."""

        def shown() -> bool:
            found = self.text(selector)
            assert re.search(rf"(?<!\w){re.escape(text)}(?!\w)", found), f"{selector} shows {found!r}"
            return True

        eventually(shown, timeout, every=0.02)

    def press(self, *keys: str) -> None:
        """Press keys, by their names or as characters."""
        for key in keys:
            code = {"windowsVirtualKeyCode": _KEYS[key]} if key in _KEYS else {}
            text = {"text": "\r" if key == "Enter" else key} if key == "Enter" or key not in _KEYS else {}
            self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", key=key, **code, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def write(self, text: str) -> None:
        self.press(*text)

    def click(self, selector: str) -> None:
        x, y = self.run(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])"
            f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path: Path) -> None:
        """Write a picture of what is in sight, as PNG."""
        path.write_bytes(b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        self.call("Page.close")
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
