"""`holdfast heap create`, `list`, `describe`, `update`, `delete`, `stats`, `purge`."""

import argparse
from typing import Final

from holdfast.cli.arguments import Parser, Parsers, add_yes, confirmed, parse_int, parse_pairs
from holdfast.cli.heap.options import add_command, given, heap_path
from holdfast.cli.http_commands import http_client_for
from holdfast.cli.output import OK, USAGE, print_json, print_line, print_rows, print_table

_LISTED: Final = ("topic", "mode", "partitions", "top_k_bound", "max_retries", "durability", "dlq_topic")
_FIGURES: Final = ("topic", "ready", "delayed", "inflight", "dlq", "enqueues", "pops", "acks", "retries", "timeouts")
_PAGE: Final = 1_000
_TEXT_SETTINGS: Final = frozenset({"durability", "agent_group", "mode", "compression"})


def add_to(actions: "Parsers[Parser]") -> None:
    """Register the subcommands."""
    made = add_command(actions, "create", "create a heap", "holdfast heap create jobs --partitions 4 --mode max")
    made.add_argument("--mode", choices=("min", "max"), default="", help="which priority comes first (default: min)")
    made.add_argument("--partitions", metavar="N", help="default: 1")
    made.add_argument("--top-k-bound", metavar="K", help="how far from the best message a pop may be (default: 1)")
    made.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="any other setting")
    made.set_defaults(run=run_create)
    made = add_command(actions, "list", "list heaps", "holdfast heap list --json", named=False)
    made.set_defaults(run=run_list)
    made = add_command(actions, "describe", "show a heap with its settings", "holdfast heap describe jobs")
    made.set_defaults(run=run_describe)
    made = add_command(actions, "update", "change settings of a heap", "holdfast heap update jobs --set max_retries=5")
    made.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="a setting")
    made.add_argument("--reset", metavar="NAME", action="append", default=[], help="back to its default")
    made.add_argument("--partitions", metavar="N", help="more than it has")
    made.set_defaults(run=run_update)
    made = add_command(actions, "delete", "delete a heap and its dead letters", "holdfast heap delete jobs --yes")
    add_yes(made)
    made.set_defaults(run=run_delete)
    made = add_command(
        actions, "stats", "figures of heaps", "holdfast heap stats\nholdfast heap stats jobs", named=False
    )
    made.add_argument("name", metavar="NAME", nargs="?", default="", help="a heap's name (default: all)")
    made.set_defaults(run=run_stats)
    made = add_command(actions, "purge", "withdraw every message of a heap", "holdfast heap purge jobs --yes")
    add_yes(made)
    made.set_defaults(run=run_purge)


def run_create(args: argparse.Namespace) -> int:
    """Create a heap and print it."""
    body = {
        "topic": args.name,
        **given(
            mode=args.mode,
            partitions=parse_int(args.partitions, "--partitions", least=1),
            top_k_bound=parse_int(args.top_k_bound, "--top-k-bound", least=1),
        ),
        **_settings(args.set),
    }
    made = http_client_for(args).post("/v1/heaps", body)
    if args.json:
        print_json(made)
    else:
        print_line(f"{args.name} created: {made['mode']}, partitions: {made['partitions']}")
    return OK


def run_list(args: argparse.Namespace) -> int:
    """Print every heap."""
    client = http_client_for(args)
    page = client.get("/v1/heaps", page_size=_PAGE)
    found = page["heaps"]
    while page["next_page_token"]:
        page = client.get("/v1/heaps", page_size=_PAGE, page_token=page["next_page_token"])
        found += page["heaps"]
    print_rows("heaps", found, _LISTED, as_json=args.json)
    return OK


def run_describe(args: argparse.Namespace) -> int:
    """Print a heap, one setting in each line."""
    found = http_client_for(args).get(heap_path(args.name))
    if args.json:
        print_json(found)
    else:
        print_table(args.name, [found], list(found), vertical=True)
    return OK


def run_update(args: argparse.Namespace) -> int:
    """Change settings and print the heap."""
    changes = {
        **given(partitions=parse_int(args.partitions, "--partitions", least=1)),
        **_settings(args.set),
        **dict.fromkeys(args.reset),
    }
    found = http_client_for(args).request("PATCH", heap_path(args.name), changes).body
    if args.json:
        print_json(found)
    else:
        print_line(f"{args.name}: " + ", ".join(f"{name} = {found[name]}" for name in changes))
    return OK


def run_delete(args: argparse.Namespace) -> int:
    """Delete a heap after asking."""
    client = http_client_for(args)
    if not confirmed(args, f"Delete heap {args.name}, its dead letters, and every message in both?"):
        print_line("Nothing was deleted.")
        return USAGE
    client.delete_confirmed(heap_path(args.name), "heap.delete", args.name)
    if args.json:
        print_json({"topic": args.name, "deleted": True})
    else:
        print_line(f"{args.name} deleted")
    return OK


def run_stats(args: argparse.Namespace) -> int:
    """Print what is in heaps, and what happened so far."""
    found = http_client_for(args).get("/v1/stats", topic=args.name)
    print_rows("heaps", found["heaps"], _FIGURES, as_json=args.json)
    return OK


def run_purge(args: argparse.Namespace) -> int:
    """Withdraw every message after asking."""
    client = http_client_for(args)
    if not confirmed(args, f"Withdraw every message of heap {args.name}, leased ones too?"):
        print_line("Nothing was withdrawn.")
        return USAGE
    made = client.post("/v1/confirmations", {"action": "heap.purge", "resource": args.name})
    done = client.post(
        "/v1/purge", {"topic": args.name, "force": True, "confirmation_token": made["confirmationToken"]}
    )
    if args.json:
        print_json({"topic": args.name, **done})
    else:
        print_line(f"{done['purged']} messages of {args.name} withdrawn")
    return OK


def _settings(pairs: list[str]) -> dict[str, object]:
    """Settings as JSON has them: numbers, true and false, text."""
    return {name: _value(name, text) for name, text in parse_pairs(pairs, "--set")}


def _value(name: str, text: str) -> object:
    if name in _TEXT_SETTINGS:
        return text
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
