"""`holdfast pipeline dlq|rewind|backfill`: doing it again."""

import argparse
from typing import Any

from holdfast.cli.kafka.options import parse_int
from holdfast.cli.output import OK, console, print_json
from holdfast.cli.pipeline.options import http_client_for, print_pipeline_state
from holdfast.client.http_client import HttpClient, pipeline_path
from holdfast.vocabulary.errors import InvalidError


def run_dlq(args: argparse.Namespace) -> int:
    """What was refused; `--count` and `--replay` instead of listing it."""
    from holdfast.cli.pipeline import tables

    client, path = http_client_for(args), pipeline_path(args.name, "dlq")
    partition = parse_int(args.partition, "--partition", least=0)
    if args.replay:
        return _replay(client, path, args, partition)
    if args.count:
        said = client.get(f"{path}/count")
        if args.json:
            print_json(said)
        else:
            console().print(
                f"{said['total']} refused, {said['replayed']} replayed, {said['waiting']} waiting", markup=False
            )
            if said["reasons"]:
                console().print(tables.table("reasons", said["reasons"], ("count", "reason")))
        return OK
    limit = parse_int(args.limit, "--limit", least=1) or 100
    page = client.get(path, limit=limit, partition=partition, reason=args.reason, waiting=args.waiting)
    if args.json:
        for each in page["letters"]:
            print_json(each)
        return OK
    letters = page["letters"]
    console().print(
        tables.table("refused", map(tables.dead_letter_row, letters), tables.DEAD_LETTER_COLUMNS)
        if letters
        else "refused: none"
    )
    if page["after"]:
        console().print("there are more: --limit", markup=False)
    return OK


def _replay(client: HttpClient, path: str, args: argparse.Namespace, partition: int | None) -> int:
    """Page after page, until nothing that waits is left."""
    asked = {
        name: value for name, value in (("partition", partition), ("reason", args.reason)) if value not in (None, "")
    }
    sums = {"stored": 0, "filtered": 0, "refused": 0}
    while True:
        said = client.post(f"{path}/replay", asked)
        for name in sums:
            sums[name] += said[name]
        if not said["more"] or not (said["stored"] or said["filtered"]):
            break
    if args.json:
        print_json({**sums, "recipe": said["recipe"]})
    else:
        console().print(", ".join(f"{value} {name}" for name, value in sums.items()), markup=False)
    return OK


def run_rewind(args: argparse.Namespace) -> int:
    """Read the source again."""
    body = {"to": position(args.to), "deletePrevious": args.delete_previous}
    return _print_generation(args, http_client_for(args).post(pipeline_path(args.name, "rewind"), body))


def run_backfill(args: argparse.Namespace) -> int:
    """Read a part of the source again, or give that up."""
    client = http_client_for(args)
    if args.give_up is not None:
        number = parse_int(args.give_up, "--give-up", least=1)
        return print_pipeline_state(args, client.delete(pipeline_path(args.name, "backfill", str(number))))
    body = {"from": position(args.from_), "to": position(args.to)}
    return _print_generation(args, client.post(pipeline_path(args.name, "backfill"), body))


def _print_generation(args: argparse.Namespace, said: dict[str, Any]) -> int:
    generation = said["generation"]
    if args.json:
        print_json(said)
    else:
        starts = ", ".join(f"{number}:{offset}" for number, offset in generation["starts"].items())
        console().print(
            f"generation {generation['number']} ({generation['kind']}) begins at {starts or 'its source start'}",
            markup=False,
        )
    return OK


def position(text: str) -> str | dict[str, int]:
    """`earliest`, `latest`, a time, or `0=120,1=80`."""
    if "=" not in text:
        return text
    offsets = {}
    for each in text.split(","):
        number, _, offset = each.partition("=")
        if not (number.strip().isdecimal() and offset.strip().isdecimal()):
            raise InvalidError("position", text, "earliest, latest, an ISO 8601 time, or PARTITION=OFFSET,…")
        offsets[number.strip()] = int(offset)
    return offsets
