"""`holdfast pipeline infer`: a mapping proposed from a sample of the topic."""

import argparse
from typing import Any, Final

from holdfast.cli.arguments import Parser, Parsers, parse_int
from holdfast.cli.http_commands import http_client_for
from holdfast.cli.output import OK, print_json, print_line, print_table, print_warning
from holdfast.cli.pipeline.options import add_command
from holdfast.client.http_client import HttpClient, pipeline_path

_COLUMNS: Final = ("column", "type", "seen", "nulls", "absent", "why")


def add_to(actions: "Parsers[Parser]") -> None:
    """Register the subcommand."""
    made = add_command(
        actions, "infer", "propose a mapping from a sample", "holdfast pipeline infer orders --limit 500 --save"
    )
    made.add_argument("--limit", metavar="N", default="100", help="how many records to sample (default: 100)")
    made.add_argument("--first", action="store_true", help="sample the oldest records instead of the newest")
    made.add_argument("--save", action="store_true", help="save it, with its sorting key and table")
    made.set_defaults(run=run_infer)


def run_infer(args: argparse.Namespace) -> int:
    """Print the proposed mapping; save it if asked."""
    client, path = http_client_for(args), pipeline_path(args.name)
    limit = parse_int(args.limit, "--limit", least=1) or 100
    found = infer_mapping(client, path, limit=limit, save=args.save, where="first" if args.first else "last")
    if args.json:
        print_json(found)
        return OK
    print_table(f"from {found['records']} records", found["evidence"], _COLUMNS)
    print_line(f"order by {', '.join(found['orderBy'])}; table {found['table']}")
    if found["notObjects"]:
        print_warning(
            f"not read: {found['notObjects']} of the sampled records are no JSON objects, and would be dead letters"
        )
    for each in found["leftOut"]:
        print_warning(f"left out: {each}")
    if args.save:
        print_line("saved")
    return OK


def infer_mapping(client: HttpClient, path: str, *, limit: int, save: bool, where: str = "last") -> dict[str, Any]:
    """The server's proposal of a mapping; saved with its sorting key and table if the sink names none."""
    found: dict[str, Any] = client.post(f"{path}/infer", {"limit": limit, "where": where})
    if save:
        parts: dict[str, Any] = {"mapping": found["mapping"]}
        sink = client.get(f"{path}/parts").get("sink", {"kind": "clickhouse"})
        if sink["kind"] == "clickhouse":
            chosen = {"table": sink.get("table") or found["table"], "orderBy": sink.get("orderBy") or found["orderBy"]}
            parts["sink"] = {**sink, **chosen}
        client.put(f"{path}/parts", parts)
    return found
