"""A real local HTTP server for the download tests, and the folder of the real data files."""

import os
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


class Server:
    """Serves ``pages`` (path -> (status, body)) on 127.0.0.1 and counts the requests of each path."""

    def __init__(self):
        self.pages = {}
        self.requests = Counter()
        self.barrier = None  # requests wait for each other here if it is set
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests[self.path] += 1
                if outer.barrier is not None:
                    outer.barrier.wait(timeout=120)
                status, body = outer.pages.get(self.path, (404, b"not here"))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.httpd.serve_forever, daemon=True)
        self.thread.start()

    def add(self, path, body, status=200):
        self.pages[path] = (status, body)
        return f"http://127.0.0.1:{self.httpd.server_port}{path}"

    def close(self):
        self.httpd.shutdown()
        self.httpd.server_close()
        self.thread.join()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


@pytest.fixture(scope="session")
def data_home():
    folder = os.environ.get("FRHSIC_DATA_HOME")
    if not folder or not (Path(folder) / "adult.data.gz").is_file():
        pytest.skip("FRHSIC_DATA_HOME does not point to a folder with the data files")
    return Path(folder)
