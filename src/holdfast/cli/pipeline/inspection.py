"""`holdfast pipeline list|show|workers|status|infer|preview|validate`: looking."""

import argparse
import sys
from typing import Any

from holdfast.cli.kafka.options import parse_int
from holdfast.cli.output import FAILED, OK, console, print_json
from holdfast.cli.pipeline.file import pipeline_yaml, read_pipeline_file
from holdfast.cli.pipeline.lifecycle import infer_mapping
from holdfast.cli.pipeline.options import http_client_for
from holdfast.client.http_client import HttpClient, pipeline_path

_WATCH_S = 1.0


def run_list(args: argparse.Namespace) -> int:
    """Every pipeline and how it does."""
    from holdfast.cli.pipeline import tables

    statuses = http_client_for(args).get("/api/status")
    if args.json:
        for each in statuses:
            print_json(each)
        return OK
    columns = ("name", "state", "desired", "replicas", "rows", "lagRows", "dlqRows", "recipe")
    console().print(tables.table("pipelines", statuses, columns) if statuses else "pipelines: none")
    return OK


def run_show(args: argparse.Namespace) -> int:
    """A pipeline as `apply` reads it; secrets are ***."""
    client = http_client_for(args)
    pipeline, parts = client.get(pipeline_path(args.name)), client.get(pipeline_path(args.name, "parts"))
    if args.json:
        print_json({**pipeline, "parts": parts})
    else:
        sys.stdout.write(pipeline_yaml(pipeline, parts))
    return OK


def run_workers(args: argparse.Namespace) -> int:
    """Live workers."""
    from holdfast.cli.pipeline import tables

    workers = http_client_for(args).get("/api/workers")
    if args.json:
        for each in workers:
            print_json(each)
        return OK
    console().print(tables.table("workers", workers, tables.WORKER_COLUMNS) if workers else "workers: none")
    return OK


def run_status(args: argparse.Namespace) -> int:
    """How a pipeline does; `--watch` goes on until Ctrl-C."""
    from holdfast.cli.pipeline import tables

    client, path = http_client_for(args), pipeline_path(args.name, "status")
    if args.watch:
        return _watch(client, path, as_json=args.json)
    said = client.get(path)
    if args.json:
        print_json(said)
    else:
        console().print(tables.status(said))
    return OK


def _watch(client: HttpClient, path: str, *, as_json: bool) -> int:
    import time

    from rich.live import Live

    from holdfast.cli.pipeline import tables

    if as_json:
        while True:
            print_json(client.get(path))
            time.sleep(_WATCH_S)
    with Live(tables.status(client.get(path)), console=console(), auto_refresh=False) as live:
        while True:
            time.sleep(_WATCH_S)
            live.update(tables.status(client.get(path)), refresh=True)


def run_infer(args: argparse.Namespace) -> int:
    """A mapping proposed from a sample."""
    from holdfast.cli.pipeline import tables

    client, path = http_client_for(args), pipeline_path(args.name)
    limit = parse_int(args.limit, "--limit", least=1) or 100
    found = infer_mapping(client, path, limit=limit, save=args.save, where="first" if args.first else "last")
    if args.json:
        print_json(found)
        return OK
    console().print(tables.table(f"from {found['records']} records", found["evidence"], tables.EVIDENCE_COLUMNS))
    console().print(f"order by {', '.join(found['orderBy'])}; table {found['table']}", markup=False)
    for each in found["leftOut"]:
        console().print(f"! left out: {each}", markup=False, style="yellow")
    if args.save:
        console().print("saved", markup=False)
    return OK


def run_preview(args: argparse.Namespace) -> int:
    """Rows as they would be stored."""
    from holdfast.cli.pipeline import tables

    client = http_client_for(args)
    body: dict[str, Any] = {"limit": parse_int(args.limit, "--limit", least=1) or 20}
    if args.file:
        body["parts"] = read_pipeline_file(args.file, name=args.name).parts
    said = client.post(pipeline_path(args.name, "preview"), body)
    if args.json:
        print_json(said)
        return OK
    rows = [{"offset": f"{each['partition']}:{each['offset']}", **each["row"]} for each in said["rows"]]
    if rows:
        console().print(tables.table(f"{len(rows)} of {said['sampled']} records", rows, list(rows[0])))
    if said["refused"]:
        console().print(
            tables.table("refused", map(tables.dead_letter_row, said["refused"]), ("offset", "reason", "payload"))
        )
    for each in (*said["notes"], *((said["table"] or {}).get("blockers", ()))):
        console().print(f"! {each}", markup=False, style="yellow")
    console().print(said["ddl"], markup=False)
    return OK


def run_validate(args: argparse.Namespace) -> int:
    """Check source, server and table; 1 if something does not hold."""
    from holdfast.cli.pipeline import tables

    client, good = http_client_for(args), True
    for what in ("kafka", "clickhouse", "clickhouse-table"):
        said = client.post(pipeline_path(args.name, "validate", what))
        good &= said["ok"]
        if args.json:
            print_json({"what": what, **said})
        else:
            console().print(tables.table(what, said["checks"], ("outcome", "name", "detail")))
    return OK if good else FAILED
