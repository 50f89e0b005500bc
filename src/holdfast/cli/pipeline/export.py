"""`holdfast pipeline export`: a pipeline as a project of Spark Declarative Pipelines."""

import argparse
from pathlib import Path
from typing import Any

from holdfast.cli.arguments import Parser, Parsers
from holdfast.cli.http_commands import http_client_for
from holdfast.cli.output import FAILED, OK, print_json, print_line, print_warning
from holdfast.cli.pipeline.options import add_command
from holdfast.client.http_client import pipeline_path
from holdfast.vocabulary.errors import InvalidError, UsageError


def add_to(actions: "Parsers[Parser]") -> None:
    """Register the subcommand."""
    made = add_command(
        actions,
        "export",
        "write a pipeline as a project of Spark Declarative Pipelines",
        "holdfast pipeline export orders --sdp\nholdfast pipeline export orders --sdp --output ./orders --partial",
    )
    made.add_argument(
        "--sdp", action="store_true", required=True, help="for `spark-pipelines run`; the only form so far"
    )
    made.add_argument("--output", metavar="FOLDER", default="", help="default: the pipeline's name")
    made.add_argument(
        "--storage", metavar="URI", default="", help="of the checkpoints; default: a folder of the project"
    )
    made.add_argument(
        "--partial", action="store_true", help="write the project although it lacks something of the pipeline"
    )
    made.set_defaults(run=run_export)


def run_export(args: argparse.Namespace) -> int:
    """Write the files; print what differs. Exit with 1, and write nothing, if something has no equal there."""
    client = http_client_for(args)
    pipeline, parts = client.get(pipeline_path(args.name)), client.get(pipeline_path(args.name, "parts"))
    folder = Path(args.output or pipeline["name"])
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidError("--output", str(folder), "a folder that is empty or does not exist")
    from holdfast.pipeline.service.declarative_project import export_project

    storage = args.storage or (folder.resolve() / "storage").as_uri()
    export = export_project(_decode(pipeline["name"], parts), storage)
    written = not export.missing or args.partial
    if written:
        for name, text in export.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    if args.json:
        files = [str(folder / name) for name in export.files] if written else []
        print_json({"files": files, "missing": export.missing, "differences": export.differences})
        return OK if written else FAILED
    for each in export.differences if written else ():
        print_line(f"differs: {each}")
    for each in export.missing:
        print_warning(f"not exported: {each}")
    print_line(f"{folder}: written" if written else "nothing was written; --partial writes the rest")
    return OK if written else FAILED


def _decode(name: str, parts: dict[str, Any]) -> Any:
    import msgspec

    from holdfast.pipeline.model.column_mapping import read_mapping
    from holdfast.pipeline.model.definition import DriftPolicy, FiltersConfig, KafkaConfig, SinkConfig
    from holdfast.pipeline.service.declarative_project import PipelineParts

    for needed in ("source", "sink", "mapping"):
        if not parts.get(needed):
            raise UsageError(f"pipeline {name} has no {needed} yet")
    return PipelineParts(
        name=name,
        source=msgspec.convert(parts["source"], KafkaConfig),
        sink=msgspec.convert(parts["sink"], SinkConfig),
        mapping=read_mapping(parts["mapping"]),
        filters=msgspec.convert(parts.get("filters") or {}, FiltersConfig),
        sql=(parts.get("sql") or {}).get("sql", ""),
        drift=msgspec.convert(parts.get("drift") or {}, DriftPolicy),
    )
