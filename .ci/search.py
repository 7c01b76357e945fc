"""Search the built site in a browser, without a network: python .ci/search.py build/site."""

import contextlib
import shutil
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from playwright.sync_api import sync_playwright


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that does not print every request."""

    def log_message(self, *args: object) -> None:
        """Print nothing."""

    def copyfile(self, *files: Any) -> None:
        """Send a file to a browser that may have left the page."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            super().copyfile(*files)


chromium = shutil.which("chromium")
if chromium is None:
    print("no chromium: the site was not tried in a browser")
    sys.exit()
server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=sys.argv[1]))
threading.Thread(target=server.serve_forever, daemon=True).start()
address = f"http://127.0.0.1:{server.server_port}"
outside: list[str] = []
with sync_playwright() as driver:
    page = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"]).new_page()
    page.on("request", lambda one: one.url.startswith((address, "data:")) or outside.append(one.url))
    for word in ("age", "bandwidth", "p-value"):
        page.goto(f"{address}/search.html?q={word}")
        page.wait_for_selector("#search-results li a")
        found = page.locator("#search-results li a")
        number = found.count()
        found.first.click()
        page.wait_for_load_state()
        print(f"{word}: {number} results, the first is '{page.title()}'")
        if page.locator("h1").count() == 0:
            sys.exit(f"the first result for {word} is not a page")
    page.goto(f"{address}/explain/certificates.html")
    page.wait_for_selector("mjx-container")  # formulas are drawn
if outside:
    sys.exit(f"the site asks for {sorted(set(outside))}")
