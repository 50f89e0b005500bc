"""Who asks. The one rule: a wrong name and a wrong password look and last the same."""

import base64
import binascii
import hmac
import os
from collections.abc import Mapping
from email.message import Message
from pathlib import Path

from holdfast.clickhouse.embedded.errors import query_error
from holdfast.clickhouse.error_codes import ErrorCode
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random


def authenticate(headers: Message, parameters: Mapping[str, str], users: Mapping[str, str]) -> str:
    """The user a request is from: by header, by Basic, or by parameters, as ClickHouse takes them. A wrong one is refused."""
    name, password = _credentials(headers, parameters)
    expected = users.get(name, "")
    same = hmac.compare_digest(password.encode(), (expected or "-").encode())
    if not (same and expected):
        raise query_error(
            ErrorCode.AUTHENTICATION_FAILED,
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
                ErrorCode.AUTHENTICATION_FAILED, "Invalid authentication: not Basic with base64"
            ) from None
        return name or "default", password
    return parameters.get("user", "default"), parameters.get("password", "")


def read_password_file(file: Path) -> str:
    """A file's first line."""
    try:
        return file.read_text().partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError("password file", str(file), f"a file this user may read ({error})") from None


def load_or_create_password(data: Path, random: Random) -> str:
    """The password of a data directory: drawn at the first start, and readable by this user alone."""
    kept, unfinished = data / "password", data / f".password.{os.getpid()}"
    try:
        data.mkdir(parents=True, exist_ok=True)
        if not kept.exists():
            with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(random.token() + "\n")
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(kept)
    except OSError as error:
        raise InvalidError("data directory", str(data), f"a directory this user may write ({error})") from None
    return read_password_file(kept)
