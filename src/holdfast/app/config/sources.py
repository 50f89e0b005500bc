"""The sources of settings, each read into the same form: a TOML file, StreamHouse's variables, our own variables, flags.

Nothing is judged here but names: a misspelt one is refused and the nearest right one suggested, because a setting that is
silently ignored is found out at the worst moment.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.app.config.catalog import CATALOGUE, PREFIX
from holdfast.vocabulary.errors import InvalidError

# What begins like ours and is not: other commands' variables, test runs, and what Kubernetes sets for a service of our name.
_NOT_OURS: Final = re.compile(
    r"HOLDFAST_(CONFIG|BOOTSTRAP|(TEST|BENCH)_.*|([A-Z0-9_]+_)?(SERVICE_(HOST|PORT(_.+)?)|PORT(_\d+_.+)?))"
)


@dataclass(frozen=True, slots=True)
class SourceValue:
    """A value somebody gave. `typed`: it has a type of its own (TOML); otherwise it is text to be read."""

    name: str
    value: object
    origin: str
    typed: bool = False


def unknown_setting(origin: str, name: str) -> InvalidError:
    """The refusal of a name nobody knows, with the nearest that somebody does."""
    from difflib import get_close_matches  # only when something is wrong

    inside = [known for known in CATALOGUE if known.startswith(f"{name}.")]
    near = inside[:3] or get_close_matches(name, CATALOGUE, n=2, cutoff=0.6)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return InvalidError(origin, name, f"a name that `holdfast config show --all` lists{hint}")


def from_file(path: Path, *, shown: str) -> Iterator[SourceValue]:
    """What a TOML file says; `shown` is its name as the caller gave it."""
    import tomllib  # only when there is a file

    try:
        text = path.read_text()
        tables = tomllib.loads(text)
    except OSError as error:
        raise InvalidError("configuration file", shown, f"a readable TOML file ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidError("configuration file", shown, f"TOML ({error})") from None
    for name, value in _flattened(tables):
        origin = f"{shown}{_line_of(text, name)}"
        if name not in CATALOGUE:
            raise unknown_setting(f"{origin}: setting", name)
        yield SourceValue(name, value, origin, typed=True)


def _flattened(tables: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in tables.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _line_of(text: str, name: str) -> str:
    """`:line` of a setting. The reader of TOML does not tell; a key in an unusual spelling goes without."""
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([\w.\-]+)\s*\]", line):
            table = header[1] + "."
        elif (key := re.match(r"\s*([\w.\-]+)\s*=", line)) and table + key[1] == name:
            return f":{number}"
    return ""


def from_environment(environment: Mapping[str, str]) -> Iterator[SourceValue]:
    """What `HOLDFAST_*` variables say. An empty one says nothing."""
    names = {variable: setting.name for setting in CATALOGUE.values() for variable in setting.variables}
    said: dict[str, SourceValue] = {}
    for variable, value in sorted(environment.items()):
        if not variable.startswith(PREFIX) or _NOT_OURS.fullmatch(variable) or not value:
            continue
        name = names.get(variable)
        if name is None:
            raise _unknown_variable(variable, names)
        other = said.setdefault(name, SourceValue(name, value, f"env {variable}"))
        if other.value != value:
            raise InvalidError(
                f"environment variable {variable}", value, f"what {other.origin} says of the same setting"
            )
    yield from said.values()


def _unknown_variable(variable: str, names: Mapping[str, str]) -> InvalidError:
    from difflib import get_close_matches

    near = get_close_matches(variable, names, n=2, cutoff=0.6)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return InvalidError("environment variable", variable, f"one that `holdfast config show --all` lists{hint}")


def from_flags(flags: Mapping[str, object], assignments: tuple[str, ...] = ()) -> Iterator[SourceValue]:
    """What the command line says: setting → value (None: not given), and `--set NAME=VALUE` for the rest."""
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise InvalidError("flag --set", assignment, "NAME=VALUE, such as kafka.idle_ms=60000")
        if name not in CATALOGUE:
            raise unknown_setting("flag --set", name)
        yield SourceValue(name, value, f"flag --set {name}")
    for name, flag_value in flags.items():
        if flag_value is not None:
            yield SourceValue(name, flag_value, f"flag {CATALOGUE[name].flag}")
