"""The sources of settings, each read into the same form: a TOML file, StreamHouse's variables, our own variables, flags.

Only names are checked here: a misspelt one is an error with the nearest right one, because a setting that is silently ignored is
discovered at the worst moment.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.app.config.catalog import CATALOGUE, PREFIX
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.text import is_utf8

# Same prefix, not settings: other commands' variables, test runs, and what Kubernetes sets for a service of our name.
_NOT_OURS: Final = re.compile(
    r"HOLDFAST_(API_KEY|BOOTSTRAP|CONFIG|HTTP_URL|(TEST|BENCH)_.*|([A-Z0-9_]+_)?(SERVICE_(HOST|PORT(_.+)?)|PORT(_\d+_.+)?))"
)
_FILE_BYTES_MAX: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SourceValue:
    """A value from a source. `typed`: it has a type of its own (TOML); otherwise it is text to parse."""

    name: str
    value: object
    origin: str
    typed: bool = False


def unknown_setting(origin: str, name: str) -> InvalidError:
    """The error for an unknown name, with the nearest known one."""
    from difflib import get_close_matches  # only when something is wrong

    inside = [known for known in CATALOGUE if known.startswith(f"{name}.")]
    near = inside[:3] or get_close_matches(name, CATALOGUE, n=2, cutoff=0.6)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return InvalidError(origin, name, f"a name that `holdfast config show --all` lists{hint}")


def from_file(path: Path, *, shown: str) -> Iterator[SourceValue | InvalidError]:
    """The settings of a TOML file, and an error per unknown name; `shown` is the file's name as it was given."""
    import tomllib  # only when there is a file

    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
        if len(content) > _FILE_BYTES_MAX:
            raise InvalidError("configuration file", shown, f"at most {_FILE_BYTES_MAX} bytes")
        text = content.decode().replace("\r\n", "\n")
        tables = tomllib.loads(text)
    except OSError as error:
        raise InvalidError("configuration file", shown, f"a readable TOML file ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidError("configuration file", shown, f"TOML ({error})") from None
    for name, value in _flattened(tables):
        origin = f"{shown}{_line_of(text, name)}"
        if name in CATALOGUE:
            yield SourceValue(name, value, origin, typed=True)
        else:
            yield unknown_setting(f"setting (from {origin})", name)


def _flattened(tables: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in tables.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _line_of(text: str, name: str) -> str:
    """`:line` of a setting; empty for an unusually spelled key. tomllib keeps no lines."""
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([\w.\-]+)\s*\]", line):
            table = header[1] + "."
        elif (key := re.match(r"\s*([\w.\-]+)\s*=", line)) and table + key[1] == name:
            return f":{number}"
    return ""


def from_environment(environment: Mapping[str, str]) -> Iterator[SourceValue | InvalidError]:
    """The settings of `HOLDFAST_*` variables, and an error per unknown one. Empty variables are ignored."""
    names = {variable: setting.name for setting in CATALOGUE.values() for variable in setting.variables}
    found: dict[str, SourceValue] = {}
    for variable, value in sorted(environment.items()):
        if not variable.startswith(PREFIX) or _NOT_OURS.fullmatch(variable) or not value:
            continue
        name = names.get(variable)
        if name is None:
            yield _unknown_variable(variable, names)
            continue
        if CATALOGUE[name].metavar != "FILE" and not is_utf8(value):
            yield InvalidError("environment variable", variable, "valid UTF-8")
            continue
        other = found.setdefault(name, SourceValue(name, value, f"env {variable}"))
        if other.value != value:
            yield InvalidError(f"environment variable {variable}", value, f"equal to {other.origin}: both set {name}")
    yield from found.values()


def _unknown_variable(variable: str, names: Mapping[str, str]) -> InvalidError:
    from difflib import get_close_matches

    near = get_close_matches(variable, names, n=2, cutoff=0.6)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return InvalidError("environment variable", variable, f"one that `holdfast config show --all` lists{hint}")


def from_flags(flags: Mapping[str, object], assignments: tuple[str, ...] = ()) -> Iterator[SourceValue | InvalidError]:
    """The settings of the command line: setting → value (None: not given), and `--set NAME=VALUE` for the rest."""
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            yield InvalidError("flag --set", assignment, "NAME=VALUE, such as kafka.idle_ms=60000")
        elif name not in CATALOGUE:
            yield unknown_setting("flag --set", name)
        else:
            yield SourceValue(name, value, f"flag --set {name}")
    for name, flag_value in flags.items():
        if flag_value is not None:
            yield SourceValue(name, flag_value, f"flag {CATALOGUE[name].flag}")
