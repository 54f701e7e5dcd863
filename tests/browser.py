"""Pages in Chromium, as people use them: what tests share that are marked `browser`.

Chromium is the program that the environment variable `CHROMIUM` names, else `chromium`. Whatever
pages ask the network for, they ask a proxy of ours, which notes that down and answers with an
error. The browser has questions of its own, which lead nowhere.
"""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

LOOKS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]

FLAGS = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]


class Proxy(BaseHTTPRequestHandler):
    """Answers no request."""

    def refuse(self) -> None:
        self.server.asked.append(self.path)
        self.send_error(502)

    do_CONNECT = do_GET = do_HEAD = do_OPTIONS = do_POST = refuse

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def recorder() -> Iterator[tuple[str, list[str]]]:
    """The address of a proxy, and the URLs and hosts that it was asked for so far."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        server.asked = []
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}", server.asked
        server.shutdown()


class Visits:
    """Opens pages, and keeps what these ask the network for and say on their consoles."""

    def __init__(self, browser: Any, proxy: str, requests: list[str]):
        self.requests = requests
        self.messages: list[str] = []
        self._browser = browser
        # Not even what this machine offers is reached without it.
        self._proxy = {"server": proxy, "bypass": "<-loopback>"}

    def __call__(self, path: Path, width: int = 1280, scheme: str = "light") -> Any:
        """Opens a file in a window of its own.

        Args:
            path: Of the file.
            width: Of the window, in pixels.
            scheme: `"light"` or `"dark"`, which the reader has chosen.

        Returns:
            Playwright's page.
        """
        size = {"width": width, "height": 900}
        page = self._browser.new_page(viewport=size, color_scheme=scheme, proxy=self._proxy)
        page.on("console", lambda message: self.messages.append(message.text))
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.goto(path.as_uri())
        return page

    def close(self) -> None:
        """Closes all windows."""
        for context in self._browser.contexts:
            context.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Visits]:
    from playwright.sync_api import sync_playwright

    named = os.environ.get("CHROMIUM", "chromium")
    path = shutil.which(named)
    if path is None:
        pytest.fail(
            f"These tests need Chromium, and there is no program {named!r}. Install it (Debian: "
            "`apt-get install chromium`), or name it in the environment variable CHROMIUM"
        )
    with recorder() as (proxy, requests), sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield Visits(found, proxy, requests)
        found.close()


@pytest.fixture
def visit(browser: Visits) -> Iterator[Visits]:
    """Opens pages, which must ask for nothing and say nothing.

    A test that wants something else takes it out of `requests` and `messages`.
    """
    yield browser
    browser.close()
    requests, messages = list(browser.requests), list(browser.messages)
    browser.requests.clear()
    browser.messages.clear()
    assert requests == []
    assert messages == []


def violations(page: Any) -> dict[str, list[str]]:
    """What axe-core finds on a page: elements, by the rule that they break."""
    from axe_playwright_python.sync_playwright import Axe

    # Pages that are files may not read their style sheets as texts, which few rules want.
    found = Axe().run(page, options={"preload": False}).response
    # That it looked at all: colours, names of fields, and what scrolls are among its rules.
    rules = set(page.evaluate("axe.getRules().map((one) => one.ruleId)"))
    assert {"color-contrast", "scrollable-region-focusable"} <= rules
    return {one["id"]: [node["html"] for node in one["nodes"]] for one in found["violations"]}
