"""The servers that are compared, all running at once, and who scrapes them and takes their spans."""

import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from bench.kafka.targets import HoldfastServer, KafkaTarget

SCRAPE_S = 5.0  # more often than people do


class Variant(NamedTuple):
    """How a server is run. `module`: what is run instead of `holdfast`."""

    name: str
    module: str = "holdfast"
    options: tuple[str, ...] = ()
    traced: bool = False


OFF = Variant("off", "bench.observability.uncounted")
METRICS = Variant("metrics")
TRACES = Variant("metrics, traces of 1 %", traced=True)
ALL_TRACES = Variant("metrics, traces of all", options=("--trace-ratio", "1"), traced=True)
VARIANTS = (OFF, METRICS, TRACES, ALL_TRACES)


class _Server(HoldfastServer):
    def __init__(self, directory: Path, variant: Variant, collector: str) -> None:
        super().__init__(directory)
        self._variant = variant
        self._traces = ("--traces", f"otlp:{collector}") if variant.traced else ()

    def argv(self) -> list[str]:
        _, _, _, *serving = super().argv()
        more = ("--roles", "api,agent", *self._traces, *self._variant.options)
        return [sys.executable, "-m", self._variant.module, *serving, *more]


@contextmanager
def servers(directory: Path) -> Iterator[dict[str, KafkaTarget]]:
    """One server of each kind; those with metrics are scraped."""
    stop = threading.Event()
    with ExitStack() as stack:
        collector = stack.enter_context(_collector())
        found, scraped = {}, []
        for number, variant in enumerate(VARIANTS):
            home = directory / str(number)
            home.mkdir()
            server = stack.enter_context(_Server(home, variant, collector).running())
            found[variant.name] = KafkaTarget(server.bootstrap, server.pid)
            if variant is not OFF:
                scraped.append(f"{server.http_url}/metrics")
        scraper = threading.Thread(target=_scrape, args=(scraped, stop))
        scraper.start()
        try:
            yield found
        finally:
            stop.set()
            scraper.join()


def _scrape(urls: list[str], stop: threading.Event) -> None:
    while not stop.wait(SCRAPE_S):
        for url in urls:
            with suppress(OSError):
                urllib.request.urlopen(url, timeout=10).read()


@contextmanager
def _collector() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
