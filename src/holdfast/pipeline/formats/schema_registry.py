"""Schemas by id from a registry with Confluent's HTTP API, on the standard library.

The one rule: a schema that was read never changes, so it is asked for once per process; that a schema is unknown is asked again.
Only the registry's own "schema not found" makes an id unknown. Whatever else it answers, a wrong address and wrong credentials
included, is `UnavailableError`: nothing is decided about a record.
"""

import base64
import http.client
import json
import socket
import ssl
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from holdfast.pipeline.model.definition import SchemaRegistry
from holdfast.pipeline.model.redaction import redacted_url
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.settings import MIB

SCHEMAS_CACHED_MAX: Final = 1_000
REGISTRIES_CACHED_MAX: Final = 32
RESPONSE_BYTES_MAX: Final = 16 * MIB
REFERENCES_MAX: Final = 200
SCHEMA_NOT_FOUND: Final = 40403


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema's text, its type (AVRO, PROTOBUF, JSON), and what it imports by name, each before those that import it."""

    text: str
    type: str
    references: tuple[tuple[str, str], ...] = ()


class SchemaRegistryClient:
    """One registry. Safe for threads, which share its schemas and nothing else."""

    def __init__(self, config: SchemaRegistry) -> None:
        self._config = config
        self._known: OrderedDict[int, RegisteredSchema] = OrderedDict()
        self._lock = threading.Lock()
        parts = urlsplit(config.url)
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname or "", parts.port
        self._base = parts.path.rstrip("/")
        user = config.user or unquote(parts.username or "")
        password = config.password or unquote(parts.password or "")
        self._headers = {"accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if user:
            self._headers["authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def schema(self, number: int) -> RegisteredSchema | None:
        """A schema with its references; None: the registry does not know the id. `UnavailableError`."""
        with self._lock:
            found = self._known.get(number)
            if found is not None:
                self._known.move_to_end(number)
                return found
        answer = self._get(f"/schemas/ids/{number}")
        if answer is None:
            return None
        found = self._registered(answer)
        with self._lock:
            self._known[number] = found
            if len(self._known) > SCHEMAS_CACHED_MAX:
                self._known.popitem(last=False)
        return found

    def check(self) -> str:
        """What kinds of schemas the registry has. `UnavailableError`."""
        kinds = self._request("/schemas/types")
        if not isinstance(kinds, list):
            raise self._unavailable("/schemas/types is not answered as a registry does")
        return ", ".join(str(kind)[:20] for kind in kinds[:10])

    def _registered(self, answer: Mapping[str, Any]) -> RegisteredSchema:
        references: dict[str, str] = {}
        self._resolve(answer, references, ())
        return RegisteredSchema(self._text(answer), str(answer.get("schemaType") or "AVRO"), tuple(references.items()))

    def _resolve(self, answer: Mapping[str, Any], references: dict[str, str], around: tuple[str, ...]) -> None:
        """Add what a schema refers to, depth first. A version of a subject never changes either."""
        for name, subject, version in self._references(answer):
            if name in references:
                continue
            if name in around or len(references) + len(around) >= REFERENCES_MAX:
                raise self._unavailable(f"a schema has more than {REFERENCES_MAX} references, or is among its own")
            found = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true")
            if found is None:
                raise self._unavailable(
                    f"version {version} of subject {subject!r}, which a schema refers to, is unknown"
                )
            self._resolve(found, references, (*around, name))
            references[name] = self._text(found)

    def _references(self, answer: Mapping[str, Any]) -> list[tuple[str, str, int]]:
        given = answer.get("references") or []
        try:
            return [(str(each["name"]), str(each["subject"]), int(each["version"])) for each in given]
        except (TypeError, KeyError, ValueError):
            raise self._unavailable("the references of a schema are not those of a registry") from None

    def _text(self, answer: Mapping[str, Any]) -> str:
        text = answer.get("schema")
        if not isinstance(text, str):
            raise self._unavailable("an answer has no schema")
        return text

    def _get(self, path: str) -> Mapping[str, Any] | None:
        answer = self._request(path)
        if answer is not None and not isinstance(answer, dict):
            raise self._unavailable("an answer is no JSON object")
        return answer

    def _request(self, path: str) -> Any:
        """What a path holds; None: the registry says that there is no such schema."""
        status, body = self._send(self._base + path)
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if status == http.client.OK and answer is not None:
            return answer
        code = answer.get("error_code") if isinstance(answer, dict) else None
        if status == http.client.NOT_FOUND and code == SCHEMA_NOT_FOUND:
            return None
        # The text of an answer may be another service's: it is not repeated.
        raise self._unavailable(f"status {status}" + (f", error code {code}" if isinstance(code, int) else ""))

    def _send(self, path: str) -> tuple[int, bytes]:
        connection = self._connection()
        try:
            connection.connect()
            with _time_limit(connection.sock, self._config.timeout_ms) as late:
                connection.request("GET", path, headers=self._headers)
                answer = connection.getresponse()
                body = answer.read(RESPONSE_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            raise self._unavailable(str(error) or type(error).__name__) from None
        finally:
            connection.close()
        if late.is_set():
            raise self._unavailable(f"no answer within {self._config.timeout_ms} ms")
        if len(body) > RESPONSE_BYTES_MAX:
            raise self._unavailable(f"an answer has more than {RESPONSE_BYTES_MAX} bytes")
        return answer.status, body

    def _connection(self) -> http.client.HTTPConnection:
        timeout_s = self._config.timeout_ms / 1_000
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        try:
            context = ssl.create_default_context(cafile=self._config.ca_file or None)
        except OSError as error:
            raise self._unavailable(f"caFile: {error}") from None
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=context)

    def _unavailable(self, reason: str) -> UnavailableError:
        return UnavailableError(f"the schema registry at {redacted_url(self._config.url)}", reason)


@contextmanager
def _time_limit(connected: socket.socket, limit_ms: int) -> Iterator[threading.Event]:
    """End a connection after a while. The timeout of a socket counts from its last byte, and bytes may come for ever."""
    late = threading.Event()

    def end() -> None:
        late.set()
        with suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(limit_ms / 1_000, end)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()


@lru_cache(maxsize=REGISTRIES_CACHED_MAX)
def registry_client(config: SchemaRegistry) -> SchemaRegistryClient:
    """The process's client of a registry."""
    return SchemaRegistryClient(config)
