"""`holdfast doctor …`: what a part of Holdfast needs on this machine."""

import argparse
import os

import msgspec
from rich.markup import escape

from holdfast.cli.arguments import add_family
from holdfast.cli.output import FAILED, OK, console, print_json

EXAMPLES = """\
examples:
  holdfast doctor spark
  holdfast doctor spark --bootstrap 127.0.0.1:9092
  holdfast doctor spark --python /opt/venv/bin/python --json
"""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register this family's commands."""
    actions = add_family(commands, "doctor", "check what Spark needs on this machine")
    spark = actions.add_parser(
        "spark",
        help="check what a Spark job on this machine needs",
        description="Checks PySpark, Java, the Python that Spark's workers run and what it can import, whether Spark finds "
        'format("holdfast"), and whether the brokers answer. Starts no Spark.',
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    spark.add_argument("--bootstrap", metavar="HOST:PORT", default="", help="brokers that must answer")
    spark.add_argument(
        "--python", metavar="PATH", default="", help="the workers' Python (default: as Spark chooses it)"
    )
    spark.add_argument("--json", action="store_true", help="one JSON object per finding")
    spark.set_defaults(run=run_spark)


def run_spark(args: argparse.Namespace) -> int:
    """Print one finding per line as they come; fail if anything is missing."""
    from holdfast.spark.doctor import diagnose

    ok = True
    for finding in diagnose(os.environ, bootstrap=args.bootstrap, python=args.python):
        ok = ok and finding.ok
        if args.json:
            print_json(msgspec.to_builtins(finding))
        else:
            mark = "[green]ok  [/]" if finding.ok else "[red]FAIL[/]"
            console().print(f"{mark} {finding.check:18} {escape(finding.detail)}", soft_wrap=True)
    if not args.json:
        console().print("Spark can use Holdfast here." if ok else "Spark cannot use Holdfast here.")
    return OK if ok else FAILED
