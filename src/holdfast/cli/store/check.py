"""`holdfast store check`: try the promises of a coordination store."""

import argparse
from contextlib import aclosing

import msgspec
from rich.markup import escape

from holdfast.app.store_probe import ProbeSettings, probe_store
from holdfast.cli.output import FAILED, OK, console, print_json
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

URLS = """\
store URLs:
  memory:                                    this process only, not persisted
  sqlite:///data/holdfast.db                 one host, several processes (default)
  postgresql://user:password@host/database
  etcd://host:2379,host2:2379                etcds:// for TLS; `holdfast serve` also runs a member of its own: etcd:embedded
  redis://host:6379/0                        Redis or Valkey; rediss:// for TLS
  ?unsafe=1 accepts a server that may lose acknowledged commits
"""


def add_commands(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    check = actions.add_parser(
        "check",
        help="check that a server keeps every promise of the Store contract",
        description="Opens the store, checks its durability, and tries each promise Holdfast relies on. "
        "Writes only below a random prefix and deletes that again.",
        epilog=URLS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument("url", metavar="URL", help="the store to check")
    check.add_argument("--json", action="store_true", help="one JSON object per finding")
    check.set_defaults(run=run_check)


async def run_check(args: argparse.Namespace) -> int:
    """Print one finding per line as they come; fail if any promise does not hold."""
    ok = True
    probing = probe_store(args.url, clock=RealClock(), random=SystemRandom(), settings=ProbeSettings())
    async with aclosing(probing) as findings:
        async for finding in findings:
            ok = ok and finding.ok
            if args.json:
                print_json(msgspec.to_builtins(finding))
            else:
                mark = "[green]ok  [/]" if finding.ok else "[red]FAIL[/]"
                line = f"{mark} {finding.check:20} {finding.took_ms:6} ms  {escape(finding.detail)}"
                console().print(line, soft_wrap=True)
    if not args.json:
        console().print("This store is fit for Holdfast." if ok else "This store is not fit for Holdfast.")
    return OK if ok else FAILED
