"""A client of Holdfast's HTTP gateway on the standard library: a command starts fast, and one connection is enough.

The one rule: a refused request raises the error class that says what the caller can do, with the server's own text.
"""

import http.client
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from holdfast.security.tls import TlsFiles
from holdfast.vocabulary.errors import CorruptError, HoldfastError, InvalidError, OutcomeUnknownError, UnavailableError

_CONTROL_CHARACTERS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})


class ProblemError(InvalidError):
    """The server refused a request. `errors` are its single faults."""

    def __init__(self, status: int, detail: str, errors: tuple[str, ...] = ()) -> None:
        super().__init__("request", status, detail)
        self.args = (status, detail, errors)
        self.status, self.detail, self.errors = status, detail, errors

    def __str__(self) -> str:
        return "\n  ".join([self.detail, *self.errors])


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response body and its version."""

    body: Any
    etag: str = ""


class HttpClient:
    """A client of one server. `api_key`: if it needs one. `hint` is added to the error if no connection can be made.

    `authorities`: a PEM file of those that sign the certificate of an https server; empty: the system's.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 60.0,
        hint: str = "is `holdfast serve` running?",
        api_key: str = "",
        authorities: str = "",
    ) -> None:
        self.url, self._timeout_s, self._hint, self._api_key = url, timeout_s, hint, api_key
        self._authorities = authorities
        parts = urlsplit(url)
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname or "", parts.port
        self._base = parts.path.rstrip("/")

    def get(self, path: str, **query: object) -> Any:
        """The resource at `path`."""
        given = {name: _text(value) for name, value in query.items() if value not in (None, "", False)}
        return self.request("GET", path + (f"?{urlencode(given)}" if given else "")).body

    def post(self, path: str, body: object = None) -> Any:
        """Run the action at `path`."""
        return self.request("POST", path, body).body

    def put(self, path: str, body: object, *, etag: str = "") -> Any:
        """Replace the resource at `path`; with `etag`, only that version of it."""
        return self.request("PUT", path, body, etag=etag).body

    def delete(self, path: str) -> Any:
        """Delete the resource at `path`."""
        return self.request("DELETE", path).body

    def delete_confirmed(self, path: str, action: str, resource: str) -> Any:
        """Delete the resource at `path`, with a token where the server asks for one: the user has been asked already."""
        try:
            return self.delete(path)
        except ProblemError as refused:
            if refused.status != http.client.PRECONDITION_REQUIRED:
                raise
        made = self.post("/v1/confirmations", {"action": action, "resource": resource})
        return self.delete(f"{path}?{urlencode({'force': 'true', 'confirmation_token': made['confirmationToken']})}")

    def request(self, method: str, path: str, body: object = None, *, etag: str = "") -> HttpResponse:
        """One request. `ProblemError` and the other errors carry the server's text."""
        headers = {"accept": "application/json"}
        if self._api_key:
            headers["authorization"] = f"Bearer {self._api_key}"
        sent = None
        if body is not None:
            headers["content-type"] = "application/json"
            sent = json.dumps(body).encode()
        if etag:
            headers["if-match"] = etag
        status, content, kind, tag = self._send(method, self._base + path, sent, headers)
        value = _parse_json(content) if "json" in kind else content.decode("utf-8", "replace")
        if status >= http.client.BAD_REQUEST:
            raise self._refusal(status, value)
        return HttpResponse(value, tag)

    def _send(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes, str, str]:
        connection = self._connection()
        connected = False
        try:
            connection.connect()
            connected = True
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers.get("content-type", ""), answer.headers.get("etag", "")
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            if connected and method not in _SAFE_METHODS:
                raise OutcomeUnknownError(f"{method} {path}", f"{self.url} did not answer: {reason}") from None
            hint = "" if connected else f"; {self._hint}"
            raise UnavailableError(f"Holdfast at {self.url}", reason + hint) from None
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        context = TlsFiles(certificate="", key="", client_authorities=self._authorities).client_context()
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=context)

    def _refusal(self, status: int, problem: Any) -> HoldfastError:
        if not isinstance(problem, dict):
            return UnavailableError(self.url, f"status {status}, and not from Holdfast")
        detail = printable(problem.get("detail") or problem.get("title") or f"status {status}")
        if status == http.client.SERVICE_UNAVAILABLE:
            return UnavailableError(f"Holdfast at {self.url}", detail)
        if status == http.client.GATEWAY_TIMEOUT:
            return OutcomeUnknownError(self.url, detail)
        if status >= http.client.INTERNAL_SERVER_ERROR:
            return CorruptError(f"Holdfast at {self.url}", detail)
        return ProblemError(status, detail, tuple(filter(None, map(_error_line, problem.get("errors", ())))))


def _error_line(error: Mapping[str, str]) -> str:
    where = error.get("pointer") or error.get("parameter") or error.get("header") or ""
    allowed = f": must be {error['allowed']}" if error.get("allowed") else ""
    return printable(f"{where} {error.get('detail', '')}{allowed}".strip())


def _parse_json(content: bytes) -> Any:
    try:
        return json.loads(content) if content else None
    except ValueError:
        return None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def printable(text: object) -> str:
    """A server's text without control characters, which a terminal would execute."""
    return _CONTROL_CHARACTERS.sub("?", str(text))


def pipeline_path(name: str, *rest: str) -> str:
    """The path of a pipeline, by its id or name."""
    return "/".join(["/api/pipelines", quote(name, safe=""), *rest])
