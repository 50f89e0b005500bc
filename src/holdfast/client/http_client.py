"""A client of Holdfast's HTTP face, on the standard library: a command starts in no time, and one connection is enough.

What the server refuses is raised as the class of error that says what to do about it, in the server's own words.
"""

import http.client
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from holdfast.vocabulary.errors import CorruptError, HoldfastError, InvalidError, OutcomeUnknownError, UnavailableError

DEFAULT_ADDRESS: Final = "127.0.0.1:8080"
ADDRESS_VARIABLE: Final = "HOLDFAST_HTTP"
_CONTROL_CHARACTERS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})


class ProblemError(InvalidError):
    """The server refused a request. `errors` are the places that are wrong."""

    def __init__(self, status: int, detail: str, errors: tuple[str, ...] = ()) -> None:
        super().__init__("request", status, detail)
        self.args = (status, detail, errors)
        self.status, self.detail, self.errors = status, detail, errors

    def __str__(self) -> str:
        return "\n  ".join([self.detail, *self.errors])


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer and the version it is of."""

    body: Any
    etag: str = ""


class HttpClient:
    """Asks one server."""

    def __init__(self, url: str, *, timeout_s: float = 60.0) -> None:
        self.url, self._timeout_s = url, timeout_s
        parts = urlsplit(url)
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname or "", parts.port
        self._base = parts.path.rstrip("/")

    def get(self, path: str, **query: object) -> Any:
        """What is there."""
        given = {name: _text(value) for name, value in query.items() if value not in (None, "", False)}
        return self.ask("GET", path + (f"?{urlencode(given)}" if given else "")).body

    def post(self, path: str, body: object = None) -> Any:
        """Do something."""
        return self.ask("POST", path, body).body

    def put(self, path: str, body: object, *, etag: str = "") -> Any:
        """Save something; only over the version with this tag, if there is one."""
        return self.ask("PUT", path, body, etag=etag).body

    def delete(self, path: str) -> Any:
        """Remove something."""
        return self.ask("DELETE", path).body

    def ask(self, method: str, path: str, body: object = None, *, etag: str = "") -> HttpResponse:
        """One request. `ProblemError` and its like carry what the server says."""
        headers = {"accept": "application/json"}
        sent = None
        if body is not None:
            headers["content-type"] = "application/json"
            sent = json.dumps(body).encode()
        if etag:
            headers["if-match"] = etag
        status, got, kind, tag = self._sent(method, self._base + path, sent, headers)
        value = _parse_json(got) if "json" in kind else got.decode("utf-8", "replace")
        if status >= http.client.BAD_REQUEST:
            raise self._refusal(status, value)
        return HttpResponse(value, tag)

    def _sent(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes, str, str]:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self._timeout_s)
        reached = False
        try:
            connection.connect()
            reached = True
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers.get("content-type", ""), answer.headers.get("etag", "")
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            if reached and method not in _SAFE_METHODS:
                raise OutcomeUnknownError(f"{method} {path}", f"{self.url} did not answer: {why}") from None
            hint = "" if reached else "; is `holdfast serve` running? --http or HOLDFAST_HTTP says where"
            raise UnavailableError(f"Holdfast at {self.url}", why + hint) from None
        finally:
            connection.close()

    def _refusal(self, status: int, said: Any) -> HoldfastError:
        if not isinstance(said, dict):
            return UnavailableError(self.url, f"it answered {status}, and not as Holdfast does")
        detail = printable(said.get("detail") or said.get("title") or f"status {status}")
        if status == http.client.SERVICE_UNAVAILABLE:
            return UnavailableError(f"Holdfast at {self.url}", detail)
        if status == http.client.GATEWAY_TIMEOUT:
            return OutcomeUnknownError(self.url, detail)
        if status >= http.client.INTERNAL_SERVER_ERROR:
            return CorruptError(f"Holdfast at {self.url}", detail)
        return ProblemError(status, detail, tuple(filter(None, map(_error_line, said.get("errors", ())))))


def _error_line(said: Mapping[str, str]) -> str:
    where = said.get("pointer") or said.get("parameter") or said.get("header") or ""
    allowed = f": must be {said['allowed']}" if said.get("allowed") else ""
    return printable(f"{where} {said.get('detail', '')}{allowed}".strip())


def _parse_json(got: bytes) -> Any:
    try:
        return json.loads(got) if got else None
    except ValueError:
        return None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def printable(text: object) -> str:
    """A server's words, without what a terminal would obey."""
    return _CONTROL_CHARACTERS.sub("?", str(text))


def server_url(given: str) -> str:
    """The URL of a server: what was given, `$HOLDFAST_HTTP`, or the local one. `HOST:PORT` will do, as `serve --http` takes it."""
    text = given or os.environ.get(ADDRESS_VARIABLE, "") or DEFAULT_ADDRESS
    allowed = "a URL such as http://127.0.0.1:8080, or HOST:PORT"
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidError("--http", text, allowed) from None
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.query
        or "@" in parts.netloc
        or text == "off"
    ):
        raise InvalidError("--http", text, allowed)
    if parts.hostname in ("0.0.0.0", "::"):  # noqa: S104 - where a server listens is not where it is reached
        return f"{parts.scheme}://127.0.0.1:{port or 80}{parts.path}"
    return url


def pipeline_path(name: str, *rest: str) -> str:
    """Where a pipeline is, by its id or name."""
    return "/".join(["/api/pipelines", quote(name, safe=""), *rest])
