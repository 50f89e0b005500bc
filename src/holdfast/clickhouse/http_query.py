"""One statement over ClickHouse's HTTP interface, with the standard library alone.

For the command line, which must not need `clickhouse-connect` to show a table. It keeps no connection and retries nothing.
"""

import http.client
import re
import ssl
from typing import Final
from urllib.parse import SplitResult, urlencode

from holdfast.clickhouse.client import ca_file_of, database_of_dsn, parse_dsn, port_of
from holdfast.clickhouse.errors import ClickHouseError, ClickHouseUnreachableError

_CODE: Final = re.compile(r"Code: (\d+)\.")


def query(url: str, sql: str, *, user: str, password: str, format: str, timeout_s: float) -> bytes:  # noqa: A002
    """The result of a statement, in a format such as `PrettyCompact` or `JSONEachRow`.

    `url` is `http[s]://host[:port][/database][?ca_file=FILE]`; `InvalidError` if it is not. `ClickHouseError` has the server's
    message; `ClickHouseUnreachableError`: no response within `timeout_s`, or the connection broke.
    """
    parts = parse_dsn(url)
    address = f"{parts.hostname}:{port_of(parts)}"
    # The server sends the status when the statement has ended, so that an error is never in the middle of a result.
    parameters = {"default_format": format, "wait_end_of_query": "1"}
    if database := database_of_dsn(url):
        parameters["database"] = database
    headers = {"X-ClickHouse-User": user, "X-ClickHouse-Key": password, "Content-Type": "text/plain; charset=utf-8"}
    try:
        connection = _connect(parts, timeout_s)
        try:
            connection.request("POST", f"/?{urlencode(parameters)}", sql.encode(), headers)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
    except (OSError, http.client.HTTPException) as error:
        raise ClickHouseUnreachableError(address, str(error) or type(error).__name__) from None
    if response.status == http.HTTPStatus.OK:
        return body
    text = body.decode(errors="replace").strip() or f"HTTP status {response.status}"
    raise ClickHouseError(address, text, _code(response.getheader("X-ClickHouse-Exception-Code", ""), text))


def _connect(parts: SplitResult, timeout_s: float) -> http.client.HTTPConnection:
    host, port = parts.hostname or "", port_of(parts)
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    context = ssl.create_default_context(cafile=ca_file_of(parts) or None)
    return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)


def _code(header: str, text: str) -> int:
    if header.isdecimal():
        return int(header)
    found = _CODE.search(text)
    return int(found[1]) if found else 0
