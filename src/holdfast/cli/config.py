"""`holdfast config …`: the settings a server started here would have, and the origin of each."""

import argparse
import sys

from holdfast.app.config import CATALOGUE
from holdfast.app.config.effective import DEFAULT, ShownSetting
from holdfast.cli.arguments import add_family
from holdfast.cli.output import OK, print_json
from holdfast.cli.settings_flags import add_setting_flags, effective_settings_for


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register this family's commands."""
    actions = add_family(commands, "config", "show the effective settings and where each comes from")
    show = actions.add_parser(
        "show",
        help="print the effective settings and their origins",
        description="Joins defaults, the file, the environment and the flags exactly as `holdfast serve` does, and prints the "
        "result. Secrets in URLs are hidden. Without --all: the everyday settings, and those that differ from the default.",
    )
    show.add_argument("--json", action="store_true", help="one JSON object per setting")
    show.add_argument("--all", action="store_true", help="include tuning values")
    add_setting_flags(show)
    show.set_defaults(run=run_show)


async def run_show(args: argparse.Namespace) -> int:
    """Print one setting per line: name, value, origin."""
    effective = effective_settings_for(args)
    shown = [each for each in effective.shown if args.all or each.everyday or each.origin != DEFAULT]
    for notice in effective.notices:
        sys.stderr.write(f"holdfast: {notice}\n")
    if args.json:
        for each in shown:
            variable = CATALOGUE[each.name].variables[0]
            print_json({"name": each.name, "value": each.value, "from": each.origin, "variable": variable})
    else:
        _print_columns(shown)
    return OK


def _print_columns(shown: list[ShownSetting]) -> None:
    rows = [(each.name, _plain(each.value), each.origin) for each in shown]
    wide = [max(len(row[at]) for row in rows) for at in (0, 1)]
    for name, value, origin in rows:
        sys.stdout.write(f"{name:{wide[0]}}  {value:{wide[1]}}  {origin}\n")


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if value != "" else "–"
