"""`holdfast pipeline create|apply`: a pipeline from a file."""

import argparse
from contextlib import suppress
from typing import Any, Final, NoReturn

from holdfast.cli.arguments import Parser, Parsers
from holdfast.cli.output import OK, print_json, print_line, print_warning
from holdfast.cli.pipeline.file import PipelineFile, read_pipeline_file
from holdfast.cli.pipeline.infer import infer_mapping
from holdfast.cli.pipeline.options import add_command, http_client_for
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
        made.add_argument("--infer", action="store_true", help="infer and save a mapping if the file has none")
        made.add_argument("--start", action="store_true", help="start it, whatever the file's state is")
        made.set_defaults(run=run)


def run_create(args: argparse.Namespace) -> int:
    """Create a pipeline from a file; it must not exist."""
    client, file = http_client_for(args), read_pipeline_file(args.file, name=args.name)
    return _create(client, args, file)


def run_apply(args: argparse.Namespace) -> int:
    """Create a pipeline from a file, or change the existing one. Applying twice changes nothing."""
    client, file = http_client_for(args), read_pipeline_file(args.file, name=args.name)
    found = _find_pipeline(client, file.name)
    if found is None:
        return _create(client, args, file)
    if file.description is not None and file.description != found["description"]:
        client.put(pipeline_path(found["id"]), {"description": file.description})
    return _apply_file(client, args, file, found, "applied")


def _create(client: HttpClient, args: argparse.Namespace, file: PipelineFile) -> int:
    created = client.post("/api/pipelines", {"name": file.name, "description": file.description or ""})
    try:
        _put_parts(client, pipeline_path(created["id"]), file)
    except ProblemError:
        with suppress(HoldfastError):  # half a pipeline would be in the way of the next try
            client.delete(pipeline_path(created["id"]))
        raise
    return _apply_file(client, args, file, created, "created", with_parts=False)


def _find_pipeline(client: HttpClient, name: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = client.get(pipeline_path(name))
    except ProblemError as error:
        if error.status != _NOT_FOUND:
            raise
        return None
    return found


def _put_parts(client: HttpClient, path: str, file: PipelineFile) -> None:
    if file.parts:
        try:
            client.put(f"{path}/parts", file.parts)
        except ProblemError as error:
            _raise_with_lines(error, file)


def _apply_file(
    client: HttpClient,
    args: argparse.Namespace,
    file: PipelineFile,
    pipeline: dict[str, Any],
    done: str,
    *,
    with_parts: bool = True,
) -> int:
    """Parts, then the inferred mapping if one is asked for, then the state."""
    path = pipeline_path(pipeline["id"])
    if with_parts:
        _put_parts(client, path, file)
    if args.infer and "mapping" not in file.parts:
        infer_mapping(client, path, limit=100, save=True)
    state = {**file.state, **({"desired": "started"} if args.start else {})}
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
