"""`holdfast pipeline …`: pipelines of a cluster, over HTTP. Parse, ask the server, show."""

import argparse
import sys
from typing import Any

from holdfast.cli.http.client import HttpClient, ProblemError, pipeline_path, server_url
from holdfast.cli.http.files import PipelineFile, read_pipeline, written
from holdfast.cli.kafka.options import whole
from holdfast.cli.output import FAILED, OK, USAGE, console, print_json
from holdfast.vocabulary.errors import InvalidError

_NOT_FOUND = 404
_WATCH_S = 1.0

Parsers = argparse._SubParsersAction


def add_commands(commands: "Parsers[argparse.ArgumentParser]") -> None:
    """Register this family's commands."""
    from holdfast.cli.http.parsers import add_pipeline

    add_pipeline(commands)


def client_of(args: argparse.Namespace) -> HttpClient:
    """The server a command is for."""
    seconds = float(whole(args.timeout_s, "--timeout-s", least=1) or 60)
    return HttpClient(server_url(args.http), timeout_s=seconds)


# --- to make and to keep


def run_create(args: argparse.Namespace) -> int:
    """Make a pipeline from a file; it must not be there yet."""
    client, file = client_of(args), read_pipeline(args.file, name=args.name)
    made = client.post("/api/pipelines", {"name": file.name, "description": file.description or ""})
    return _settle(client, args, file, made, "created")


def run_apply(args: argparse.Namespace) -> int:
    """Make a pipeline as a file says, whether it is there or not. Applying twice changes nothing."""
    client, file = client_of(args), read_pipeline(args.file, name=args.name)
    found = _found(client, file.name)
    if found is None:
        made = client.post("/api/pipelines", {"name": file.name, "description": file.description or ""})
        return _settle(client, args, file, made, "created")
    if file.description is not None and file.description != found["description"]:
        client.put(pipeline_path(found["id"]), {"description": file.description})
    return _settle(client, args, file, found, "applied")


def _found(client: HttpClient, name: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = client.get(pipeline_path(name))
    except ProblemError as error:
        if error.status != _NOT_FOUND:
            raise
        return None
    return found


def _settle(client: HttpClient, args: argparse.Namespace, file: PipelineFile, made: dict[str, Any], did: str) -> int:
    """Parts, then the proposal if one is wanted, then the state."""
    path = pipeline_path(made["id"])
    if file.parts:
        client.put(f"{path}/parts", file.parts)
    if args.infer and "mapping" not in file.parts:
        propose(client, path, limit=100, save=True)
    state = {**file.state, **({"desired": "started"} if args.start else {})}
    if state:
        client.ask("PATCH", f"{path}/state", state)
    after = client.get(path)
    if args.json:
        print_json(after)
    else:
        console().print(f"{after['name']} {did}: recipe {after['recipe']}, {after['state']['desired']}", markup=False)
        for problem in after["problems"]:
            console().print(f"! {problem}", markup=False, style="yellow")
    return OK


def propose(client: HttpClient, path: str, *, limit: int, save: bool, where: str = "last") -> dict[str, Any]:
    """The server's proposal of a mapping; saved with its sorting key and table where the sink names none."""
    found: dict[str, Any] = client.post(f"{path}/infer", {"limit": limit, "where": where})
    if save:
        parts: dict[str, Any] = {"mapping": found["mapping"]}
        sink = client.get(f"{path}/parts").get("sink", {"kind": "clickhouse"})
        if sink["kind"] == "clickhouse":
            chosen = {"table": sink.get("table") or found["table"], "orderBy": sink.get("orderBy") or found["orderBy"]}
            parts["sink"] = {**sink, **chosen}
        client.put(f"{path}/parts", parts)
    return found


def run_delete(args: argparse.Namespace) -> int:
    """Remove pipelines; their tables stay."""
    client = client_of(args)
    if not args.yes:
        if not sys.stdin.isatty():
            raise InvalidError("delete", ", ".join(args.names), "--yes: there is no terminal to ask on")
        if input(f"delete {', '.join(args.names)} and their progress? [y/N] ").strip().lower() not in ("y", "yes"):
            return USAGE
    for name in args.names:
        client.delete(pipeline_path(name))
        console().print(f"{name} deleted; its tables stay", markup=False)
    return OK


# --- to look at


def run_list(args: argparse.Namespace) -> int:
    """Every pipeline and how it does."""
    from holdfast.cli.http import shown

    statuses = client_of(args).get("/api/status")
    if args.json:
        for each in statuses:
            print_json(each)
        return OK
    columns = ("name", "state", "desired", "replicas", "rows", "lagRows", "dlqRows", "recipe")
    console().print(shown.table("pipelines", statuses, columns) if statuses else "pipelines: none")
    return OK


def run_show(args: argparse.Namespace) -> int:
    """A pipeline as `apply` reads it; secrets are ***."""
    client = client_of(args)
    pipeline, parts = client.get(pipeline_path(args.name)), client.get(pipeline_path(args.name, "parts"))
    if args.json:
        print_json({**pipeline, "parts": parts})
    else:
        sys.stdout.write(written(pipeline, parts))
    return OK


def run_workers(args: argparse.Namespace) -> int:
    """Live workers."""
    from holdfast.cli.http import shown

    workers = client_of(args).get("/api/workers")
    if args.json:
        for each in workers:
            print_json(each)
        return OK
    console().print(shown.table("workers", workers, shown.WORKERS) if workers else "workers: none")
    return OK


def run_status(args: argparse.Namespace) -> int:
    """How a pipeline does; `--watch` goes on until Ctrl-C."""
    from holdfast.cli.http import shown

    client, path = client_of(args), pipeline_path(args.name, "status")
    if args.watch:
        return _watch(client, path, as_json=args.json)
    said = client.get(path)
    if args.json:
        print_json(said)
    else:
        console().print(shown.status(said))
    return OK


def _watch(client: HttpClient, path: str, *, as_json: bool) -> int:
    import time

    from rich.live import Live

    from holdfast.cli.http import shown

    if as_json:
        while True:
            print_json(client.get(path))
            time.sleep(_WATCH_S)
    with Live(shown.status(client.get(path)), console=console(), auto_refresh=False) as live:
        while True:
            time.sleep(_WATCH_S)
            live.update(shown.status(client.get(path)), refresh=True)


def run_infer(args: argparse.Namespace) -> int:
    """A mapping proposed from a sample."""
    from holdfast.cli.http import shown

    client, path = client_of(args), pipeline_path(args.name)
    limit = whole(args.limit, "--limit", least=1) or 100
    found = propose(client, path, limit=limit, save=args.save, where="first" if args.first else "last")
    if args.json:
        print_json(found)
        return OK
    console().print(shown.table(f"from {found['records']} records", found["evidence"], shown.EVIDENCE))
    console().print(f"order by {', '.join(found['orderBy'])}; table {found['table']}", markup=False)
    for each in found["leftOut"]:
        console().print(f"! left out: {each}", markup=False, style="yellow")
    if args.save:
        console().print("saved", markup=False)
    return OK


def run_preview(args: argparse.Namespace) -> int:
    """Rows as they would be stored."""
    from holdfast.cli.http import shown

    client = client_of(args)
    body: dict[str, Any] = {"limit": whole(args.limit, "--limit", least=1) or 20}
    if args.file:
        body["parts"] = read_pipeline(args.file, name=args.name).parts
    said = client.post(pipeline_path(args.name, "preview"), body)
    if args.json:
        print_json(said)
        return OK
    rows = [{"offset": f"{each['partition']}:{each['offset']}", **each["row"]} for each in said["rows"]]
    if rows:
        console().print(shown.table(f"{len(rows)} of {said['sampled']} records", rows, list(rows[0])))
    if said["refused"]:
        console().print(shown.table("refused", map(shown.letter_row, said["refused"]), ("offset", "reason", "payload")))
    for each in (*said["notes"], *((said["table"] or {}).get("blockers", ()))):
        console().print(f"! {each}", markup=False, style="yellow")
    console().print(said["ddl"], markup=False)
    return OK


def run_validate(args: argparse.Namespace) -> int:
    """Check source, server and table; 1 if something does not hold."""
    from holdfast.cli.http import shown

    client, good = client_of(args), True
    for what in ("kafka", "clickhouse", "clickhouse-table"):
        said = client.post(pipeline_path(args.name, "validate", what))
        good &= said["ok"]
        if args.json:
            print_json({"what": what, **said})
        else:
            console().print(shown.table(what, said["checks"], ("outcome", "name", "detail")))
    return OK if good else FAILED


# --- to run


def run_start(args: argparse.Namespace) -> int:
    """Have workers run it."""
    return _told(args, client_of(args).post(pipeline_path(args.name, "start")))


def run_stop(args: argparse.Namespace) -> int:
    """Have workers let it go."""
    return _told(args, client_of(args).post(pipeline_path(args.name, "stop")))


def run_scale(args: argparse.Namespace) -> int:
    """More or fewer slots."""
    replicas = whole(args.replicas, "REPLICAS", least=1)
    return _told(args, client_of(args).post(pipeline_path(args.name, "scale"), {"replicas": replicas}))


def _told(args: argparse.Namespace, pipeline: dict[str, Any]) -> int:
    if args.json:
        print_json(pipeline)
    else:
        state = pipeline["state"]
        console().print(f"{pipeline['name']}: {state['desired']}, {state['replicas']} replicas", markup=False)
    return OK


# --- to do again


def run_dlq(args: argparse.Namespace) -> int:
    """What was refused; `--count` and `--replay` instead of listing it."""
    from holdfast.cli.http import shown

    client, path = client_of(args), pipeline_path(args.name, "dlq")
    partition = whole(args.partition, "--partition", least=0)
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
                console().print(shown.table("reasons", said["reasons"], ("count", "reason")))
        return OK
    limit = whole(args.limit, "--limit", least=1) or 100
    page = client.get(path, limit=limit, partition=partition, reason=args.reason, waiting=args.waiting)
    if args.json:
        for each in page["letters"]:
            print_json(each)
        return OK
    letters = page["letters"]
    console().print(
        shown.table("refused", map(shown.letter_row, letters), shown.LETTERS) if letters else "refused: none"
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
    return _begun(args, client_of(args).post(pipeline_path(args.name, "rewind"), body))


def run_backfill(args: argparse.Namespace) -> int:
    """Read a part of the source again, or give that up."""
    client = client_of(args)
    if args.give_up is not None:
        number = whole(args.give_up, "--give-up", least=1)
        return _told(args, client.delete(pipeline_path(args.name, "backfill", str(number))))
    body = {"from": position(args.from_), "to": position(args.to)}
    return _begun(args, client.post(pipeline_path(args.name, "backfill"), body))


def _begun(args: argparse.Namespace, said: dict[str, Any]) -> int:
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
