"""Text from others, made safe to print: a terminal obeys control characters, and a log line must not begin another one."""

from typing import Final

# Everything that moves a cursor, rings or recolours: C0, DEL, C1, and Unicode's line and paragraph separators.
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}
_CONTROLS_BUT_WHITESPACE: Final = {code: text for code, text in _CONTROLS.items() if chr(code) not in "\t\n"}


def is_utf8(text: str) -> bool:
    """Whether it is text: other bytes of arguments, variables and paths are surrogates, which nothing encodes."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def escape_controls(text: str) -> str:
    r"""`text` with control characters written `\xNN`; tab and newline stay."""
    return text.translate(_CONTROLS_BUT_WHITESPACE)


def single_line(text: str) -> str:
    r"""`text` on one line: as `escape_controls`, with `\n`, `\r` and `\t` escaped too."""
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t").translate(_CONTROLS)
