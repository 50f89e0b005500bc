"""The ClickHouse that commands query: one given by URL, or the embedded one of a server, found in the server's data directory."""

import errno
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from holdfast.clickhouse.client import port_of
from holdfast.clickhouse.errors import ClickHouseUnreachableError
from holdfast.clickhouse.http_query import query
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.host_port import join_host_port

DATA_VARIABLE: Final = "HOLDFAST_DATA"
DEFAULT_DATA: Final = "holdfast-data"
_USER: Final = "default"


@dataclass(frozen=True, slots=True)
class ClickHouseAccess:
    """An HTTP address and the credentials for it."""

    url: str
    user: str
    password: str

    def __repr__(self) -> str:
        return f"ClickHouseAccess({self.url!r})"

    @classmethod
    def from_url(cls, url: str) -> "ClickHouseAccess":
        """From `http[s]://user:password@host:port[/database]`."""
        allowed = "http[s]://user:password@host:port[/database]"
        try:
            parts = urlsplit(url)
            port_of(parts)
        except ValueError:
            raise InvalidError("--clickhouse", "…", allowed) from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidError("--clickhouse", "…", allowed)
        address = f"{parts.scheme}://{join_host_port(parts.hostname, port_of(parts))}{parts.path}"
        return cls(address, unquote(parts.username or _USER), unquote(parts.password or ""))

    @classmethod
    def of_server(cls, data: Path) -> "ClickHouseAccess":
        """The embedded ClickHouse of the server whose data directory this is."""
        addresses = server_addresses(data)
        if addresses is None:
            raise UnavailableError("embedded ClickHouse", f"no server has run in {data.absolute()}; {_REMEDY}")
        if "clickhouse" not in addresses:
            raise UnavailableError("embedded ClickHouse", f"it is off in the server of {data.absolute()}; {_REMEDY}")
        try:
            password = (data / "clickhouse" / "password").read_text().strip()
        except OSError as error:
            raise UnavailableError("embedded ClickHouse", f"its password is not readable: {error}") from None
        return cls(f"http://{addresses['clickhouse']}", _USER, password)

    def query(self, sql: str, *, form: str = "TabSeparated", timeout_s: float = 30.0) -> bytes:
        """The result of a statement. `ClickHouseError` has the server's message; `UnavailableError`: nothing listens there;
        `ClickHouseUnreachableError`: no response to a statement that was sent.
        """
        try:
            return query(self.url, sql, user=self.user, password=self.password, format=form, timeout_s=timeout_s)
        except ClickHouseUnreachableError as error:
            if os.strerror(errno.ECONNREFUSED) not in error.text:
                raise
            reason = "connection refused; is the server running? `holdfast serve` starts one"
            raise UnavailableError(f"ClickHouse at {error.address}", reason) from None


_REMEDY: Final = "start one with `holdfast serve`, or give --data DIR or --clickhouse URL"


def server_addresses(data: Path) -> dict[str, str] | None:
    """The addresses a server wrote into its data directory; None if there are none."""
    try:
        found = json.loads((data / "addresses.json").read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
