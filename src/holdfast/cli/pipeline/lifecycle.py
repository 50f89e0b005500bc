"""`holdfast pipeline create|apply|delete|start|stop|scale`: making pipelines and saying what is wanted of them."""

import argparse
import sys
from typing import Any

from holdfast.cli.kafka.options import parse_int
from holdfast.cli.output import OK, USAGE, console, print_json
from holdfast.cli.pipeline.file import PipelineFile, read_pipeline_file
from holdfast.cli.pipeline.options import http_client_for, print_pipeline_state
from holdfast.client.http_client import HttpClient, ProblemError, pipeline_path
from holdfast.vocabulary.errors import InvalidError

_NOT_FOUND = 404


def run_create(args: argparse.Namespace) -> int:
    """Make a pipeline from a file; it must not be there yet."""
    client, file = http_client_for(args), read_pipeline_file(args.file, name=args.name)
    made = client.post("/api/pipelines", {"name": file.name, "description": file.description or ""})
    return _apply_file(client, args, file, made, "created")


def run_apply(args: argparse.Namespace) -> int:
    """Make a pipeline as a file says, whether it is there or not. Applying twice changes nothing."""
    client, file = http_client_for(args), read_pipeline_file(args.file, name=args.name)
    found = _find_pipeline(client, file.name)
    if found is None:
        made = client.post("/api/pipelines", {"name": file.name, "description": file.description or ""})
        return _apply_file(client, args, file, made, "created")
    if file.description is not None and file.description != found["description"]:
        client.put(pipeline_path(found["id"]), {"description": file.description})
    return _apply_file(client, args, file, found, "applied")


def _find_pipeline(client: HttpClient, name: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = client.get(pipeline_path(name))
    except ProblemError as error:
        if error.status != _NOT_FOUND:
            raise
        return None
    return found


def _apply_file(
    client: HttpClient, args: argparse.Namespace, file: PipelineFile, made: dict[str, Any], did: str
) -> int:
    """Parts, then the proposal if one is wanted, then the state."""
    path = pipeline_path(made["id"])
    if file.parts:
        client.put(f"{path}/parts", file.parts)
    if args.infer and "mapping" not in file.parts:
        infer_mapping(client, path, limit=100, save=True)
    state = {**file.state, **({"desired": "started"} if args.start else {})}
    if state:
        client.request("PATCH", f"{path}/state", state)
    after = client.get(path)
    if args.json:
        print_json(after)
    else:
        console().print(f"{after['name']} {did}: recipe {after['recipe']}, {after['state']['desired']}", markup=False)
        for problem in after["problems"]:
            console().print(f"! {problem}", markup=False, style="yellow")
    return OK


def infer_mapping(client: HttpClient, path: str, *, limit: int, save: bool, where: str = "last") -> dict[str, Any]:
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
    client = http_client_for(args)
    if not args.yes:
        if not sys.stdin.isatty():
            raise InvalidError("delete", ", ".join(args.names), "--yes: there is no terminal to ask on")
        if input(f"delete {', '.join(args.names)} and their progress? [y/N] ").strip().lower() not in ("y", "yes"):
            return USAGE
    for name in args.names:
        client.delete(pipeline_path(name))
        console().print(f"{name} deleted; its tables stay", markup=False)
    return OK


def run_start(args: argparse.Namespace) -> int:
    """Have workers run it."""
    return print_pipeline_state(args, http_client_for(args).post(pipeline_path(args.name, "start")))


def run_stop(args: argparse.Namespace) -> int:
    """Have workers let it go."""
    return print_pipeline_state(args, http_client_for(args).post(pipeline_path(args.name, "stop")))


def run_scale(args: argparse.Namespace) -> int:
    """More or fewer slots."""
    replicas = parse_int(args.replicas, "REPLICAS", least=1)
    return print_pipeline_state(
        args, http_client_for(args).post(pipeline_path(args.name, "scale"), {"replicas": replicas})
    )
