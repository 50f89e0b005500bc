"""Shared by the commands of heaps: paths, numbers with a sign, payloads as people see them."""

import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from holdfast.cli.arguments import Parser, Parsers
from holdfast.cli.http_commands import add_http_command
from holdfast.vocabulary.errors import InvalidError

_PAYLOAD_CHARS: Final = 80


def add_command(actions: "Parsers[Parser]", name: str, does: str, examples: str, *, named: bool = True) -> Parser:
    """A subcommand about a heap."""
    return add_http_command(actions, name, does, examples, named="a heap's name" if named else "")


def heap_path(name: str) -> str:
    """The path of a heap."""
    return f"/v1/heaps/{quote(name, safe='')}"


def parse_signed(text: str, option: str) -> int:
    """A number that may be negative."""
    if not re.fullmatch(r"-?\d{1,19}", text):
        raise InvalidError(option, text, "an integer")
    return int(text)


def given(**values: object) -> dict[str, object]:
    """What was given."""
    return {name: value for name, value in values.items() if value not in (None, "", ())}


def message_row(item: Mapping[str, Any]) -> dict[str, object]:
    """A message in a table: its payload as text, shortened."""
    encoded = item.get("payload_base64")
    if encoded is None:
        return dict(item)
    payload = b64decode(encoded).decode("utf-8", "replace")
    return {**item, "payload": payload if len(payload) <= _PAYLOAD_CHARS else payload[:_PAYLOAD_CHARS] + "…"}
