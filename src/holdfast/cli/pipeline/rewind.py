"""`holdfast pipeline rewind|backfill`: read the source again."""

import argparse
import re
from datetime import UTC, datetime
from typing import Any, Final

from holdfast.cli.arguments import Parser, Parsers, parse_int
from holdfast.cli.http_commands import http_client_for
from holdfast.cli.output import OK, print_json, print_line
from holdfast.cli.pipeline.options import add_command, print_pipeline_state
from holdfast.client.admin.positions import AtTime, Beginning, EndPosition, parse_position
from holdfast.client.http_client import pipeline_path
from holdfast.pipeline.model.timestamps import parse_iso_ns
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError

_NEGATIVE: Final = re.compile(r"-\d")
_ALLOWED: Final = "earliest, latest, a time such as 2026-03-01T12:00:00Z, a duration such as -1h, or PARTITION=OFFSET,…"


def add_to(actions: "Parsers[Parser]") -> None:
    """Register the subcommands."""
    rewind = add_command(
        actions,
        "rewind",
        "read the source again, as a new generation",
        "holdfast pipeline rewind orders --to 2026-11-15T00:00:00Z\n"
        "holdfast pipeline rewind orders --to -1h\n"
        "holdfast pipeline rewind orders --to 0=120,1=80",
    )
    rewind._negative_number_matcher = _NEGATIVE  # "-1h" is a value here, not a flag
    rewind.add_argument(
        "--to", metavar="POSITION", required=True, help="earliest, latest, a time, -1h, or PARTITION=OFFSET,…"
    )
    rewind.add_argument(
        "--delete-previous", action="store_true", help="delete rows of older generations once they are replaced"
    )
    rewind.set_defaults(run=run_rewind)
    backfill = add_command(
        actions,
        "backfill",
        "read a part of the source again, beside the live generation",
        "holdfast pipeline backfill orders --from 2026-11-01T00:00:00Z --to 2026-11-02T00:00:00Z",
    )
    backfill._negative_number_matcher = _NEGATIVE
    backfill.add_argument("--from", dest="from_", metavar="POSITION", default="earliest", help="default: earliest")
    backfill.add_argument("--to", metavar="POSITION", default="latest", help="default: latest")
    backfill.add_argument("--give-up", metavar="GENERATION", help="cancel this backfill instead")
    backfill.set_defaults(run=run_backfill)


def run_rewind(args: argparse.Namespace) -> int:
    """Begin a new generation at a position."""
    body = {"to": parse_source_position(args.to, "--to"), "deletePrevious": args.delete_previous}
    return _print_generation(args, http_client_for(args).post(pipeline_path(args.name, "rewind"), body))


def run_backfill(args: argparse.Namespace) -> int:
    """Begin a backfill, or cancel one."""
    client = http_client_for(args)
    if args.give_up is not None:
        number = parse_int(args.give_up, "--give-up", least=1)
        return print_pipeline_state(args, client.delete(pipeline_path(args.name, "backfill", str(number))))
    body = {"from": parse_source_position(args.from_, "--from"), "to": parse_source_position(args.to, "--to")}
    return _print_generation(args, client.post(pipeline_path(args.name, "backfill"), body))


def _print_generation(args: argparse.Namespace, response: dict[str, Any]) -> int:
    generation = response["generation"]
    if args.json:
        print_json(response)
    else:
        starts = ", ".join(f"{number}:{offset}" for number, offset in generation["starts"].items())
        print_line(f"generation {generation['number']} ({generation['kind']}) begins at {starts or 'its source start'}")
    return OK


def parse_source_position(text: str, option: str) -> str | dict[str, int]:
    """`earliest`, `latest`, a time as ISO 8601, or an offset per partition: as the server takes them."""
    if "=" in text:
        return _offsets(text, option)
    if parse_iso_ns(text) is not None:
        return text  # the server's meaning: without a zone it is UTC, as everywhere in pipelines
    try:
        position = parse_position(text, option=option, now_ms=RealClock().now_ms())
    except InvalidError:
        raise InvalidError(option, text, _ALLOWED) from None
    match position:
        case Beginning():
            return "earliest"
        case EndPosition():
            return "latest"
        case AtTime(timestamp_ms):
            return (
                datetime.fromtimestamp(timestamp_ms / 1_000, UTC)
                .isoformat(timespec="milliseconds")
                .replace("+00:00", "Z")
            )
    raise InvalidError(option, text, _ALLOWED)


def _offsets(text: str, option: str) -> dict[str, int]:
    offsets = {}
    for each in text.split(","):
        number, _, offset = each.partition("=")
        if not (number.strip().isdecimal() and offset.strip().isdecimal()):
            raise InvalidError(option, text, _ALLOWED)
        offsets[number.strip()] = int(offset)
    return offsets
