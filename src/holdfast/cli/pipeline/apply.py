"""`holdfast pipeline create|apply`: a pipeline from a file."""

import argparse
from contextlib import suppress
from typing import Any, Final, NoReturn

from holdfast.cli.arguments import Parser, Parsers
from holdfast.cli.http_commands import http_client_for
from holdfast.cli.output import OK, print_json, print_line, print_warning
from holdfast.cli.pipeline.changes import changed_secrets, declared_parts, part_changes
from holdfast.cli.pipeline.file import PipelineFile, read_pipeline_file
from holdfast.cli.pipeline.infer import infer_mapping
from holdfast.cli.pipeline.options import add_command
from holdfast.cli.standard_output import OutputError
from holdfast.client.http_client import HttpClient, ProblemError, pipeline_path
from holdfast.vocabulary.errors import HoldfastError

_NOT_FOUND: Final = 404


def add_to(actions: "Parsers[Parser]") -> None:
    """Register the subcommands."""
    for name, does, run in (
        ("create", "create a pipeline from a file; fails if it exists", run_create),
        ("apply", "create or change a pipeline so that it is as a file describes", run_apply),
    ):
        made = add_command(
            actions, name, does, f"holdfast pipeline {name} -f pipeline.yaml --infer --start", named=False
        )
        made.add_argument("-f", "--file", metavar="FILE", required=True, help="YAML, JSON or TOML; - is standard input")
        made.add_argument("--name", metavar="NAME", default="", help="overrides the file's")
        made.add_argument(
            "--infer", action="store_true", help="infer and save a mapping if neither the file nor the pipeline has one"
        )
        made.add_argument("--start", action="store_true", help="start it, whatever the file's state is")
        if name == "apply":
            made.add_argument("--dry-run", action="store_true", help="print what would change, and change nothing")
        made.set_defaults(run=run)


def run_create(args: argparse.Namespace) -> int:
    """Create a pipeline from a file; it must not exist."""
    client, file = http_client_for(args), read_pipeline_file(args.file, name=args.name)
    return _create(client, args, file)


def run_apply(args: argparse.Namespace) -> int:
    """Create a pipeline from a file, or make the existing one as the file describes. Applying twice changes nothing."""
    client, file = http_client_for(args), read_pipeline_file(args.file, name=args.name)
    found = _find_pipeline(client, file.name)
    if found is None:
        if args.dry_run:
            print_line(f"{file.name} would be created")
            return OK
        return _create(client, args, file)
    parts, lines = _changes(client, args, file, found)
    if not args.json:
        for line in lines:
            print_line(line)
    if args.dry_run:
        if not lines:
            print_line(f"{file.name} is as the file describes")
        return OK
    if (file.description or "") != found["description"]:
        client.put(pipeline_path(found["id"]), {"description": file.description or ""})
    return _apply_file(client, args, file, found, "applied" if lines else "unchanged", parts)


def _changes(
    client: HttpClient, args: argparse.Namespace, file: PipelineFile, found: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """The parts to save, and a line for each field that changes. What the file leaves out has its default."""
    path = pipeline_path(found["id"])
    stored = client.request("GET", f"{path}/parts")
    parts = declared_parts(file.parts, stored.body)
    planned = stored
    if parts:
        try:
            planned = client.request("PUT", f"{path}/parts?dryRun=true", parts)
        except ProblemError as error:
            _raise_with_lines(error, file)
    lines = part_changes(stored.body, planned.body)
    lines += changed_secrets(stored.etag, planned.etag, lines)
    wanted = {"description": file.description or "", "state": {**file.state, **_started(args)}}
    state = {key: found["state"].get(key) for key in wanted["state"]}
    return parts, [*part_changes({"description": found["description"], "state": state}, wanted), *lines]


def _create(client: HttpClient, args: argparse.Namespace, file: PipelineFile) -> int:
    created = client.post("/api/pipelines", {"name": file.name, "description": file.description or ""})
    try:
        return _apply_file(client, args, file, created, "created", file.parts)
    except OutputError:
        raise
    except HoldfastError:
        with suppress(HoldfastError):  # half a pipeline would be in the way of the next try
            client.delete_confirmed(pipeline_path(created["id"]), "pipeline.delete", created["id"])
        raise


def _started(args: argparse.Namespace) -> dict[str, str]:
    return {"desired": "started"} if args.start else {}


def _find_pipeline(client: HttpClient, name: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = client.get(pipeline_path(name))
    except ProblemError as error:
        if error.status != _NOT_FOUND:
            raise
        return None
    return found


def _apply_file(
    client: HttpClient,
    args: argparse.Namespace,
    file: PipelineFile,
    pipeline: dict[str, Any],
    done: str,
    parts: dict[str, Any],
) -> int:
    """Parts, then the inferred mapping if one is asked for and there is none, then the state."""
    path = pipeline_path(pipeline["id"])
    if parts:
        try:
            stored = client.put(f"{path}/parts", parts)
        except ProblemError as error:
            _raise_with_lines(error, file)
    else:
        stored = client.get(f"{path}/parts")
    if args.infer and "mapping" not in stored and not stored.get("query", {}).get("sources"):
        infer_mapping(client, path, limit=100, save=True)
    state = {**file.state, **_started(args)}
    if state:
        client.request("PATCH", f"{path}/state", state)
    after = client.get(path)
    if args.json:
        print_json(after)
    else:
        print_line(f"{after['name']} {done}: revision {after['recipe']}, {after['state']['desired']}")
        for problem in after["problems"]:
            print_warning(problem)
    return OK


def _raise_with_lines(error: ProblemError, file: PipelineFile) -> NoReturn:
    """The server's refusal, each pointer with the file's line."""
    raise ProblemError(error.status, error.detail, tuple(_with_line(each, file) for each in error.errors)) from None


def _with_line(text: str, file: PipelineFile) -> str:
    pointer, _, _ = text.partition(" ")
    if not pointer.startswith("#/"):
        return text
    path = tuple(int(step) if step.isdecimal() else step for step in pointer[2:].split("/"))
    line = next((file.lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in file.lines), None)
    return text if line is None else f"{file.source}:{line}: {text}"
