"""The command line of `holdfast pipeline`."""

import argparse
import textwrap

from holdfast.cli.pipeline import inspection, lifecycle, reprocessing

Parsers = argparse._SubParsersAction
Parser = argparse.ArgumentParser


def add_pipeline_commands(families: "Parsers[Parser]") -> None:
    """`holdfast pipeline` and everything under it."""
    family = families.add_parser("pipeline", help="make, run and look after pipelines, over HTTP")
    actions = family.add_subparsers(dest="action", required=True, metavar="COMMAND")
    _add_lifecycle(actions)
    _add_inspection(actions)
    _add_start_stop_scale(actions)
    _add_reprocessing(actions)


def _command(actions: "Parsers[Parser]", name: str, does: str, examples: str, *, named: bool = True) -> Parser:
    made = actions.add_parser(
        name,
        help=does,
        description=textwrap.fill(does[0].upper() + does[1:] + ".", 100),
        epilog="examples:\n" + textwrap.indent(examples, "  "),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if named:
        made.add_argument("name", metavar="NAME", help="a pipeline's name or id")
    made.add_argument("--http", metavar="URL", default="", help="default: $HOLDFAST_HTTP, else 127.0.0.1:8080")
    made.add_argument("--timeout-s", metavar="S", default="60", help="how long to wait for an answer (60)")
    made.add_argument("--json", action="store_true", help="JSON, one object per line")
    return made


def _add_lifecycle(actions: "Parsers[Parser]") -> None:
    for name, does, run in (
        ("create", "make a pipeline from a file; it must not be there yet", lifecycle.run_create),
        ("apply", "make a pipeline as a file says, whether it is there or not", lifecycle.run_apply),
    ):
        made = _command(actions, name, does, f"holdfast pipeline {name} -f pipeline.yaml --infer --start", named=False)
        made.add_argument("-f", "--file", metavar="FILE", required=True, help="YAML, JSON or TOML; - is standard input")
        made.add_argument("--name", metavar="NAME", default="", help="instead of the file's")
        made.add_argument("--infer", action="store_true", help="without a mapping in the file, save a proposed one")
        made.add_argument("--start", action="store_true", help="start it, whatever the file says")
        made.set_defaults(run=run)
    delete = _command(
        actions, "delete", "remove stopped pipelines; tables stay", "holdfast pipeline delete orders --yes", named=False
    )
    delete.add_argument("names", metavar="NAME", nargs="+")
    delete.add_argument("--yes", action="store_true", help="do not ask; required where there is no terminal to ask on")
    delete.set_defaults(run=lifecycle.run_delete)


def _add_inspection(actions: "Parsers[Parser]") -> None:
    listing = _command(actions, "list", "list pipelines and how they do", "holdfast pipeline list --json", named=False)
    listing.set_defaults(run=inspection.run_list)
    show = _command(
        actions, "show", "print a pipeline as `apply` reads it", "holdfast pipeline show orders > orders.yaml"
    )
    show.set_defaults(run=inspection.run_show)
    workers = _command(actions, "workers", "list live workers", "holdfast pipeline workers", named=False)
    workers.set_defaults(run=inspection.run_workers)
    status = _command(
        actions, "status", "show rows, lag, slots and what is in the way", "holdfast pipeline status orders --watch"
    )
    status.add_argument("--watch", action="store_true", help="go on until Ctrl-C")
    status.set_defaults(run=inspection.run_status)
    infer = _command(
        actions, "infer", "propose a mapping from a sample", "holdfast pipeline infer orders --limit 500 --save"
    )
    infer.add_argument("--limit", metavar="N", default="100", help="how many records to look at (100)")
    infer.add_argument("--first", action="store_true", help="the oldest records instead of the newest")
    infer.add_argument("--save", action="store_true", help="save it, with its sorting key and table")
    infer.set_defaults(run=inspection.run_infer)
    preview = _command(
        actions, "preview", "show rows as they would be stored", "holdfast pipeline preview orders -f edited.yaml"
    )
    preview.add_argument("--limit", metavar="N", default="20", help="how many records to look at (20)")
    preview.add_argument("-f", "--file", metavar="FILE", default="", help="parts to look at instead of the saved ones")
    preview.set_defaults(run=inspection.run_preview)
    validate = _command(actions, "validate", "check source, server and table", "holdfast pipeline validate orders")
    validate.set_defaults(run=inspection.run_validate)


def _add_start_stop_scale(actions: "Parsers[Parser]") -> None:
    start = _command(actions, "start", "have workers run it", "holdfast pipeline start orders")
    start.set_defaults(run=lifecycle.run_start)
    stop = _command(actions, "stop", "have workers finish and let it go", "holdfast pipeline stop orders")
    stop.set_defaults(run=lifecycle.run_stop)
    scale = _command(actions, "scale", "give it more or fewer slots", "holdfast pipeline scale orders 3")
    scale.add_argument("replicas", metavar="REPLICAS")
    scale.set_defaults(run=lifecycle.run_scale)


def _add_reprocessing(actions: "Parsers[Parser]") -> None:
    dlq = _command(
        actions,
        "dlq",
        "list, count or replay what was refused",
        "holdfast pipeline dlq orders --reason Decimal\nholdfast pipeline dlq orders --replay",
    )
    dlq.add_argument("--limit", metavar="N", default="100", help="how many to list (100)")
    dlq.add_argument("--partition", metavar="N", help="of this partition only")
    dlq.add_argument("--reason", metavar="TEXT", default="", help="with this in their reason")
    dlq.add_argument("--waiting", action="store_true", help="only those no replay has made anything of")
    dlq.add_argument("--count", action="store_true", help="how many, and why")
    dlq.add_argument("--replay", action="store_true", help="put what waits through the newest recipe")
    dlq.set_defaults(run=reprocessing.run_dlq)
    rewind = _command(
        actions,
        "rewind",
        "read the source again, as a new generation",
        "holdfast pipeline rewind orders --to 2026-11-15T00:00:00Z\nholdfast pipeline rewind orders --to 0=120,1=80",
    )
    rewind.add_argument(
        "--to", metavar="POSITION", required=True, help="earliest, latest, a time, or PARTITION=OFFSET,…"
    )
    rewind.add_argument(
        "--delete-previous", action="store_true", help="delete rows of older generations once they are replaced"
    )
    rewind.set_defaults(run=reprocessing.run_rewind)
    backfill = _command(
        actions,
        "backfill",
        "read a part of the source again, beside the live generation",
        "holdfast pipeline backfill orders --from 2026-11-01T00:00:00Z --to 2026-11-02T00:00:00Z",
    )
    backfill.add_argument("--from", dest="from_", metavar="POSITION", default="earliest")
    backfill.add_argument("--to", metavar="POSITION", default="latest")
    backfill.add_argument("--give-up", metavar="GENERATION", help="end this backfill instead")
    backfill.set_defaults(run=reprocessing.run_backfill)
