"""The API key of commands that talk to a server: `--api-key-file`, else `$HOLDFAST_API_KEY`. Never an argument: those are seen."""

from pathlib import Path
from typing import Final

from holdfast.cli.arguments import Parser, environment_text
from holdfast.vocabulary.errors import InvalidError

KEY_VARIABLE: Final = "HOLDFAST_API_KEY"
_KEY_BYTES_MAX: Final = 4_096


def add_api_key(parser: Parser) -> None:
    """Register the flag."""
    parser.add_argument(
        "--api-key-file",
        metavar="FILE",
        default="",
        help=f"has the API key, if the server needs one (or ${KEY_VARIABLE})",
    )


def api_key(file: str) -> str:
    """The key; empty: none is given."""
    if not file:
        return environment_text(KEY_VARIABLE).strip()
    try:
        with Path(file).open() as opened:
            found = opened.read(_KEY_BYTES_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError("--api-key-file", file, f"a readable file ({error})") from None
    if not found or not found.isascii() or not found.isprintable():
        raise InvalidError("--api-key-file", file, "a file with an API key")
    return found
