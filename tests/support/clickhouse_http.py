"""Plain HTTP with everything visible: status, headers, body."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from holdfast.testing.clickhouse import ClickHouseServer


@dataclass
class HttpResponse:
    status: int
    headers: Message
    body: bytes

    @property
    def code(self) -> str | None:
        return self.headers["X-ClickHouse-Exception-Code"]


def send_query(
    server: ClickHouseServer,
    body: bytes | None = None,
    *,
    path: str = "/",
    headers: Mapping[str, str] | None = None,
    method: str | None = None,
    **parameters: Any,
) -> HttpResponse:
    known = {"X-ClickHouse-User": server.user, "X-ClickHouse-Key": server.password}
    url = f"http://{server.host}:{server.port}{path}" + (f"?{urlencode(parameters)}" if parameters else "")
    request = Request(url, data=body, headers=dict(known if headers is None else headers), method=method)
    try:
        with urlopen(request, timeout=100) as answer:
            return HttpResponse(answer.status, answer.headers, answer.read())
    except HTTPError as error:
        with error:
            return HttpResponse(error.code, error.headers, error.read())


def auth_headers(server: ClickHouseServer, **more: str) -> dict[str, str]:
    return {"X-ClickHouse-User": server.user, "X-ClickHouse-Key": server.password, **more}


@dataclass
class BackgroundCall:
    """A call on a thread of its own."""

    call: Callable[[], Any]
    outcome: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=lambda: self.outcome.append(self.call()), daemon=True)
        self._thread.start()

    def result(self) -> Any:
        self._thread.join(60)
        assert self.outcome, "it did not end"
        return self.outcome[0]


ENDLESS_QUERY = b"SELECT count() FROM numbers_mt(1000000000000) WHERE sipHash64(number) % 3 = 1"


def is_running(server: ClickHouseServer, query_id: str) -> bool:
    asks = b"SELECT count() FROM system.processes WHERE query_id = {id:String}"
    return send_query(server, asks, param_id=query_id).body == b"1\n"
