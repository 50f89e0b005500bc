"""`holdfast text`: a client of the text protocol, for one request, for lines of standard input, or interactive."""

import argparse
import socket
import sys
from collections.abc import Iterable, Iterator
from struct import Struct
from types import TracebackType
from typing import Final

import msgspec

from holdfast.cli.api_key import add_api_key, api_key
from holdfast.cli.arguments import parse_number
from holdfast.cli.output import OK, OUTCOME_UNKNOWN, UNAVAILABLE, USAGE, print_json
from holdfast.gateways.text.frames import encode_frames
from holdfast.gateways.text.requests import NO_SECURITY
from holdfast.vocabulary.errors import InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.host_port import resolvable, split_host_port
from holdfast.vocabulary.text import escape_controls

_LENGTH: Final = Struct("<I")
_PROMPT: Final = "text> "
_EXIT_CODES: Final = (
    ("ERR NotLeaderForPartition", UNAVAILABLE),
    ("ERR forward append failed", UNAVAILABLE),
    ("ERR unavailable", UNAVAILABLE),
    ("ERR outcome unknown", OUTCOME_UNKNOWN),
    ("ERR", USAGE),
)
_EPILOG: Final = """\
examples:
  holdfast text 127.0.0.1:9095 PUT logs hello world
  holdfast text 127.0.0.1:9095 GET logs
  holdfast text 127.0.0.1:9095 STATE logs --json
  printf 'PUT logs a\\nPUT logs b\\n' | holdfast text 127.0.0.1:9095
  holdfast text 127.0.0.1:9095                          interactive; Ctrl-D ends it

  HOLDFAST_API_KEY=hf_… holdfast text node-1:9095 GET logs      where connections need a key

Requests: REGISTER topic · PUT topic payload · GET topic · FETCH topic partition offset [records] · STATE topic · METRICS
"""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    made = commands.add_parser(
        "text",
        help="send requests of the text protocol",
        description="Sends a request of the text protocol and prints the answer. Without a request, each line of standard input "
        "is one; on a terminal it is interactive. The exit code is that of the first error that was answered.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("address", metavar="HOST:PORT", help="any node that serves the text protocol (`serve --text`)")
    made.add_argument("request", nargs="*", metavar="WORD", help="a request; its words are joined by spaces")
    made.add_argument("--timeout-s", metavar="S", default="30", help="how long to wait for an answer (default: 30)")
    add_api_key(made)
    made.add_argument("--json", action="store_true", help="one JSON object per answer")
    made.set_defaults(run=run_text)


class TextSession:
    """One connection, a request at a time."""

    def __init__(self, address: str, timeout_s: float) -> None:
        found = split_host_port(address)
        if found is None or not resolvable(found.host) or found.port is None:
            raise InvalidError("address", address, "HOST:PORT, such as 127.0.0.1:9095")
        try:
            self._socket = socket.create_connection((found.host, found.port), timeout=timeout_s)
        except OSError as error:
            raise UnavailableError(f"text protocol at {address}", str(error)) from None
        self._address = address
        self._answers = self._socket.makefile("rb")

    def __enter__(self) -> "TextSession":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._answers.close()
        self._socket.close()

    def ask(self, request: bytes) -> bytes:
        """The answer to a request. `OutcomeUnknownError`: none came."""
        try:
            self._socket.sendall(encode_frames((request,)))
            length = self._read(_LENGTH.size)
            return self._read(*_LENGTH.unpack(length))
        except OSError as error:
            raise OutcomeUnknownError(request[:40].decode(errors="replace"), f"{self._address}: {error}") from None

    def log_in(self, key: str) -> None:
        """Send AUTH. `InvalidError`: the key is refused. A server without security needs none, and says so: that is no error."""
        answer = self.ask(b"AUTH " + key.encode()).decode(errors="replace")
        if answer != "OK" and NO_SECURITY not in answer:
            raise InvalidError("API key", "of the file or the environment", f"a valid one ({escape_controls(answer)})")

    def _read(self, count: int) -> bytes:
        data = self._answers.read(count)
        if len(data) < count:
            raise ConnectionError("the connection was closed")
        return data


def run_text(args: argparse.Namespace) -> int:
    """Send the requests, print the answers."""
    timeout_s = parse_number(args.timeout_s, "--timeout-s", above=0, most=86_400)
    exit_code = OK
    key = api_key(args.api_key_file)
    with TextSession(args.address, timeout_s) as session:
        if key:
            session.log_in(key)
        for request in _requests(args.request):
            reply = session.ask(request)
            _print(reply, as_json=args.json)
            exit_code = exit_code or _exit_code(reply)
    return exit_code


def _requests(words: list[str]) -> Iterator[bytes]:
    if words:
        yield " ".join(words).encode(errors="surrogateescape")
        return
    lines: Iterable[str] = _typed() if sys.stdin.isatty() else sys.stdin
    for line in lines:
        if request := line.rstrip("\r\n"):
            yield request.encode(errors="surrogateescape")


def _typed() -> Iterator[str]:
    import readline  # noqa: F401 (`input` uses it: history and editing)

    while True:
        try:
            yield input(_PROMPT)
        except EOFError:
            print()
            return


def _print(reply: bytes, *, as_json: bool) -> None:
    text = reply.decode(errors="replace")
    if not as_json:
        print(escape_controls(text))
        return
    if text.startswith("{"):
        print_json(msgspec.json.decode(reply))
        return
    status, _, rest = text.partition(" ")
    print_json({"status": status, "error": rest} if status == "ERR" else {"status": status, "payload": rest or None})


def _exit_code(reply: bytes) -> int:
    text = reply.decode(errors="replace")
    return next((code for start, code in _EXIT_CODES if text.startswith(start)), OK)
