"""The flags of a server, for every command that takes them, and the settings they and the environment come to."""

import argparse
import os
import shlex
from pathlib import Path

from holdfast.app.config import CATALOGUE, EffectiveSettings, effective_settings
from holdfast.vocabulary.errors import InvalidError


def add_setting_flags(made: argparse.ArgumentParser) -> None:
    """Every flag of a server, for all commands that take them."""
    for setting in CATALOGUE.values():
        if not setting.flag:
            continue
        if setting.kind is bool:
            made.add_argument(
                setting.flag, dest=setting.name, action="store_const", const=True, default=None, help=setting.help
            )
        else:
            of = f": {', '.join(setting.choices)}" if setting.choices else ""
            default = f" (default: {setting.default})" if setting.default else ""
            made.add_argument(
                setting.flag,
                dest=setting.name,
                metavar=setting.metavar,
                action="append" if setting.repeated else "store",
                help=f"{setting.help}{of}{default}",
            )
    made.add_argument("--config", metavar="FILE", default="", help="a TOML file with settings")
    made.add_argument(
        "--set",
        dest="assignments",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="any setting that `holdfast config show --all` lists; may be repeated",
    )


def effective_settings_for(args: argparse.Namespace) -> EffectiveSettings:
    """The settings of a call: its flags, this process's environment, its working directory."""
    directory = Path.cwd()
    try:
        return effective_settings(
            flags={name: _joined(getattr(args, name)) for name, setting in CATALOGUE.items() if setting.flag},
            assignments=tuple(args.assignments),
            file=args.config,
            environment=os.environ,
            directory=directory,
        )
    except UnicodeEncodeError:  # of the URLs in the data directory
        raise InvalidError("working directory", directory, "valid UTF-8, or give --data DIR") from None


def _joined(given: object) -> object:
    return shlex.join(given) if isinstance(given, list) else given
