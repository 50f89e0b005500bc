"""The URL of the HTTP gateway that commands talk to: `--http`, else `$HOLDFAST_HTTP_URL`, else the local one."""

import os
from typing import Final
from urllib.parse import urlsplit

from holdfast.cli.arguments import environment_text
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.host_port import resolvable

DEFAULT_ADDRESS: Final = "127.0.0.1:8080"
ADDRESS_VARIABLE: Final = "HOLDFAST_HTTP_URL"
AUTHORITIES_VARIABLE: Final = "HOLDFAST_TLS_CA"
NOT_CONNECTED_HINT: Final = f"is `holdfast serve` running? --http or {ADDRESS_VARIABLE} gives its address"


def server_url(given: str) -> str:
    """The server's URL. `given` is a URL or `HOST:PORT`, as `serve --http` takes it."""
    text = given or environment_text(ADDRESS_VARIABLE) or DEFAULT_ADDRESS
    allowed = "a URL such as http://127.0.0.1:8080, or HOST:PORT"
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidError("--http", text, allowed) from None
    if (
        parts.scheme not in ("http", "https")
        or not resolvable(parts.hostname or "")
        or "?" in url
        or "#" in url
        or not parts.path.isascii()
        or not all(each.isprintable() and not each.isspace() for each in url)
        or "@" in parts.netloc
        or text == "off"
    ):
        raise InvalidError("--http", text, allowed)
    if parts.hostname in ("0.0.0.0", "::"):  # noqa: S104 - a listen address, which clients cannot connect to
        usual = 443 if parts.scheme == "https" else 80
        return f"{parts.scheme}://127.0.0.1:{port or usual}{parts.path}"
    return url


def tls_authorities(given: str) -> str:
    """The file of authorities for an https server: `--tls-ca`, else `$HOLDFAST_TLS_CA`; empty: the system's."""
    return given or os.environ.get(AUTHORITIES_VARIABLE, "")
