"""Users and passwords. The one rule: an unknown user and a wrong password give the same response in the same time."""

import base64
import binascii
import hmac
from collections.abc import Mapping
from email.message import Message
from pathlib import Path

from holdfast.clickhouse.embedded.errors import query_error
from holdfast.clickhouse.error_codes import ClickHouseErrorCode
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.files import write_atomic
from holdfast.vocabulary.random import Random


def authenticate(headers: Message, parameters: Mapping[str, str], users: Mapping[str, str]) -> str:
    """The user of a request: by header, Basic authentication or parameters, as ClickHouse accepts them."""
    name, password = _credentials(headers, parameters)
    expected = users.get(name, "")
    same = hmac.compare_digest(password.encode(), (expected or "-").encode())
    if not (same and expected):
        raise query_error(
            ClickHouseErrorCode.AUTHENTICATION_FAILED,
            f"{name}: Authentication failed: password is incorrect, or there is no user with such name",
        )
    return name


def _credentials(headers: Message, parameters: Mapping[str, str]) -> tuple[str, str]:
    if "X-ClickHouse-User" in headers or "X-ClickHouse-Key" in headers:
        return headers.get("X-ClickHouse-User", "default"), headers.get("X-ClickHouse-Key", "")
    kind, _, credentials = headers.get("Authorization", "").partition(" ")
    if kind.lower() == "basic":
        try:
            name, _, password = base64.b64decode(credentials.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise query_error(
                ClickHouseErrorCode.AUTHENTICATION_FAILED, "Invalid authentication: not Basic with base64"
            ) from None
        return name or "default", password
    return parameters.get("user", "default"), parameters.get("password", "")


def read_password_file(file: Path) -> str:
    """The first line of a password file."""
    try:
        return file.read_text().partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError("password file", str(file), f"a readable text file ({error})") from None


def load_or_create_password(data: Path, random: Random) -> str:
    """The password of a data directory: generated at the first start, and readable by this user alone."""
    file = data / "password"
    try:
        data.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            write_atomic(file, f"{random.token()}\n".encode(), mode=0o600)
    except OSError as error:
        raise InvalidError("data directory", str(data), f"a writable directory ({error})") from None
    return read_password_file(file)
