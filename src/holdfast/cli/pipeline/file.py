"""A pipeline as a file: YAML, JSON or TOML, by its ending.

    name: orders
    description: orders of the shop
    source: {topic: orders}
    sink: {kind: clickhouse, table: orders}
    mapping: {columns: [...]}
    filters: {enabled: true, expression: "amount > 10"}
    sql: ""
    drift: {unknownFields: dlq}
    state: {desired: started, replicas: 2}

A pipeline with a query has `query` in place of `mapping` and `sql`; `engine` beside it is short for the query's, and `pythonFile`
in it is a file beside this one, whose text is sent:

    engine: structured-streaming
    query: {sources: [{topic: orders, schema: "id BIGINT, at TIMESTAMP"}], pythonFile: counts.py}

The one rule: a file is data. YAML is read without anything that could construct objects or run code.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, Final

from holdfast.cli.pipeline.file_check import FileMistakes, check_part
from holdfast.cli.pipeline.file_check import Path as KeyPath
from holdfast.vocabulary.errors import InvalidError, UsageError

PARTS: Final = ("source", "sink", "mapping", "filters", "sql", "drift", "query")
KEYS: Final = ("name", "description", "engine", *PARTS, "state")
_BYTES_MAX: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """The content of a file. `lines`: the line of each key, where it is known."""

    name: str
    description: str | None = None
    parts: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    lines: Mapping[KeyPath, int] = field(default_factory=dict)


def read_pipeline_file(path: str, *, name: str = "") -> PipelineFile:
    """A file, or standard input as `-` (YAML or JSON). `name` overrides the file's. Raises every mistake at once."""
    text = _text(path)
    given = _decode(path, text)
    if not isinstance(given, dict):
        raise InvalidError(path, type(given).__name__, "a pipeline: name, source, sink, mapping, …")
    lines = key_lines(path, text)
    mistakes = FileMistakes(path, lines)
    for key in given:
        if key not in KEYS:
            near = get_close_matches(str(key), KEYS, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else "must be one of " + ", ".join(KEYS)
            mistakes.add((key,), f"unknown key {key!r}: {hint}")
    called = name or given.get("name")
    if not isinstance(called, str) or not called:
        mistakes.add(("name",), "name is missing: set it, or pass --name")
    if not isinstance(given.get("description"), (str, NoneType)):
        mistakes.add(("description",), f"invalid description {given['description']!r}: must be text")
    parts = {key: given[key] for key in PARTS if given.get(key) is not None}
    if isinstance(parts.get("sql"), str):
        parts["sql"] = {"sql": parts["sql"]}
    if "engine" in given or "query" in parts:
        _read_query(path, given, parts, mistakes)
    state = given.get("state") or {}
    for key, value in {**parts, "state": state}.items():
        if not isinstance(value, dict):
            mistakes.add((key,), f"invalid {key} {value!r}: must be an object")
        elif key != "state":
            check_part(key, value, mistakes)
    mistakes.raise_any()
    return PipelineFile(str(called), given.get("description"), parts, dict(state), path, lines)


def _read_query(path: str, given: dict[str, Any], parts: dict[str, Any], mistakes: FileMistakes) -> None:
    """The part `query` with the file's engine, and with the text of its Python file."""
    query = parts.get("query", {})
    if not isinstance(query, dict):
        return
    query = dict(query)
    if "engine" in given and query.setdefault("engine", given["engine"]) != given["engine"]:
        mistakes.add(("engine",), f"invalid engine {given['engine']!r}: must be the query's, {query['engine']!r}")
    if isinstance(name := query.pop("pythonFile", None), str):
        folder = Path() if path == "-" else Path(path).parent
        query["python"] = _text(str(folder / name))
    elif name is not None:
        mistakes.add(("query", "pythonFile"), f"invalid query.pythonFile {name!r}: must be the name of a file")
    parts["query"] = query


def key_lines(path: str, text: str) -> dict[KeyPath, int]:
    """The line of every key of a YAML or JSON file, from 1; of a TOML file of its tables and plain keys."""
    if Path(path).suffix.lower() == ".toml":
        return _toml_lines(text)
    import yaml

    try:
        return dict(_node_lines(yaml.compose(text, Loader=yaml.SafeLoader), ()))
    except yaml.YAMLError:  # JSON that YAML cannot read: tabs
        return {}


def _node_lines(node: Any, path: KeyPath) -> Iterator[tuple[KeyPath, int]]:
    import yaml

    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*path, key.value), key.start_mark.line + 1
            yield from _node_lines(value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield (*path, number), value.start_mark.line + 1
            yield from _node_lines(value, (*path, number))


def _toml_lines(text: str) -> dict[KeyPath, int]:
    found: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*([\w.\-]+)\s*\]", line):
            table = tuple(header[1].split("."))
            found.setdefault(table, number)
        elif key := re.match(r"\s*([\w.\-]+)\s*=", line):
            found.setdefault((*table, *key[1].split(".")), number)
    return found


def _decode(path: str, text: str) -> Any:
    try:
        match Path(path).suffix.lower():
            case ".json":
                return json.loads(text)
            case ".toml":
                import tomllib

                return tomllib.loads(text)
            case _:
                return _yaml(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid YAML, JSON or TOML: {error}") from None


def _yaml(text: str) -> Any:
    import yaml  # only if there is a file

    try:
        return yaml.load(text, Loader=_loader_without_timestamps(yaml))  # noqa: S506 - a safe loader that leaves times as they are written
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def _loader_without_timestamps(yaml: Any) -> Any:
    """YAML's safe loader, for which 2026-11-15 is text: the server parses times itself."""

    class Plain(yaml.SafeLoader):  # type: ignore[misc]
        """See above."""

    Plain.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Plain


def _text(path: str) -> str:
    import sys

    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as file:
            raw = file.read(_BYTES_MAX + 1)
        if len(raw) > _BYTES_MAX:
            raise UsageError(f"{path} is larger than {_BYTES_MAX} bytes")
        return raw.decode()
    except OSError as error:
        raise InvalidError("file", path, f"readable ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InvalidError("file", path, "UTF-8") from None


def pipeline_yaml(pipeline: dict[str, Any], parts: dict[str, Any]) -> str:
    """A pipeline as YAML, as `apply` reads it."""
    import yaml

    whole = {"name": pipeline["name"], "description": pipeline["description"], **parts, "state": pipeline["state"]}
    if "sql" in whole:
        whole["sql"] = whole["sql"]["sql"]
    return str(yaml.safe_dump(whole, sort_keys=False, allow_unicode=True, width=120))
