"""Who asks. The one rule: a wrong name and a wrong password look and last the same."""

import base64
import binascii
import hmac
from collections.abc import Mapping
from email.message import Message

from holdfast.gateways.clickhouse.errors import AUTHENTICATION_FAILED, refusal


def user_of(headers: Message, parameters: Mapping[str, str], users: Mapping[str, str]) -> str:
    """The user a request is from: by header, by Basic, or by parameters, as ClickHouse takes them. A wrong one is refused."""
    name, password = _claimed(headers, parameters)
    expected = users.get(name, "")
    same = hmac.compare_digest(password.encode(), (expected or "-").encode())
    if not (same and expected):
        raise refusal(
            AUTHENTICATION_FAILED,
            f"{name}: Authentication failed: password is incorrect, or there is no user with such name",
        )
    return name


def _claimed(headers: Message, parameters: Mapping[str, str]) -> tuple[str, str]:
    if "X-ClickHouse-User" in headers or "X-ClickHouse-Key" in headers:
        return headers.get("X-ClickHouse-User", "default"), headers.get("X-ClickHouse-Key", "")
    kind, _, credentials = headers.get("Authorization", "").partition(" ")
    if kind.lower() == "basic":
        try:
            name, _, password = base64.b64decode(credentials.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise refusal(AUTHENTICATION_FAILED, "Invalid authentication: not Basic with base64") from None
        return name or "default", password
    return parameters.get("user", "default"), parameters.get("password", "")
