"""What has arrived: asked of ClickHouse itself over HTTP, or of the pipeline's status where nobody told us how to sign in."""

import http.client
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

from holdfast.vocabulary.errors import UnavailableError


@dataclass(frozen=True, slots=True)
class RowCount:
    """Rows in the table, and how many different offsets they are of; None: not known."""

    rows: int
    distinct: int | None


class CountedTable:
    """A table of a ClickHouse."""

    def __init__(self, url: str, name: str) -> None:
        parts = urlsplit(url)
        self._place = (parts.hostname or "", parts.port or 8123)
        signed = f"{unquote(parts.username or 'default')}:{unquote(parts.password or '')}"
        self._headers = {"authorization": "Basic " + b64encode(signed.encode()).decode()}
        self._name = name

    def arrived(self) -> RowCount:
        """What is there now; nothing, while there is no table."""
        asked = "SELECT count(), uniqExact(_topic, _partition, _offset) FROM {table:Identifier}"
        status, text = self._ask(asked, {"param_table": self._name})
        if status != http.client.OK:
            if "UNKNOWN_TABLE" in text:
                return RowCount(0, 0)
            raise UnavailableError("ClickHouse", text.strip().splitlines()[0] if text.strip() else f"status {status}")
        rows, distinct = text.split()
        return RowCount(int(rows), int(distinct))

    def _ask(self, statement: str, options: Mapping[str, str]) -> tuple[int, str]:
        connection = http.client.HTTPConnection(*self._place, timeout=30)
        try:
            connection.request("POST", f"/?{urlencode(options)}", statement.encode(), self._headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError("ClickHouse", str(error) or type(error).__name__) from None
        finally:
            connection.close()


def count_from_status(status: Mapping[str, Any]) -> RowCount:
    """What the pipeline says it has written."""
    return RowCount(int(status["rows"]), None)
