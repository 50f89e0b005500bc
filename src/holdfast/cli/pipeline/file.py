"""A pipeline as a file: YAML, JSON or TOML, by its ending.

    name: orders
    description: of the shop
    source: {topic: orders}
    sink: {kind: clickhouse, table: orders}
    mapping: {columns: [...]}
    filters: {enabled: true, expression: "amount > 10"}
    sql: ""
    drift: {unknownFields: dlq}
    state: {desired: started, replicas: 2}

The one rule: a file is data. YAML is read without anything that could make objects or run.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.vocabulary.errors import InvalidError

PARTS: Final = ("source", "sink", "mapping", "filters", "sql", "drift")
KEYS: Final = ("name", "description", *PARTS, "state")
_BYTES_MAX: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """What a file says. Parts it does not have are not touched."""

    name: str
    description: str | None = None
    parts: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)


def read_pipeline_file(path: str, *, name: str = "") -> PipelineFile:
    """A file, or standard input as `-` (YAML or JSON). `name` is used instead of the file's."""
    given = _decode(path)
    if not isinstance(given, dict):
        raise InvalidError(path, type(given).__name__, "a pipeline: name, source, sink, mapping, …")
    unknown = [str(key) for key in given if key not in KEYS]
    if unknown:
        raise InvalidError(f"{path}: key", unknown[0], "one of " + ", ".join(KEYS))
    called = name or given.get("name")
    if not isinstance(called, str) or not called:
        raise InvalidError(f"{path}: name", called, "a text, or --name")
    parts = {key: given[key] for key in PARTS if given.get(key) is not None}
    if isinstance(parts.get("sql"), str):
        parts["sql"] = {"sql": parts["sql"]}
    for key, value in {**parts, "state": given.get("state") or {}}.items():
        if not isinstance(value, dict):
            raise InvalidError(f"{path}: {key}", value, "an object")
    return PipelineFile(called, given.get("description"), parts, dict(given.get("state") or {}))


def _decode(path: str) -> Any:
    text = _text(path)
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
        raise InvalidError(path, "text that cannot be read", f"YAML, JSON or TOML ({error})") from None


def _yaml(text: str) -> Any:
    import yaml  # only when there is a file

    try:
        return yaml.load(text, Loader=_loader_without_timestamps(yaml))  # noqa: S506 - a safe loader that leaves times as they are written
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def _loader_without_timestamps(yaml: Any) -> Any:
    """YAML's safe loader, for which 2026-11-15 is a text: the server reads times itself."""

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
        raw = sys.stdin.buffer.read(_BYTES_MAX + 1) if path == "-" else Path(path).read_bytes()
        if len(raw) > _BYTES_MAX:
            raise InvalidError(path, "a very large file", f"at most {_BYTES_MAX} bytes")
        return raw.decode()
    except OSError as error:
        raise InvalidError("file", path, f"one that can be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InvalidError("file", path, "UTF-8") from None


def pipeline_yaml(pipeline: dict[str, Any], parts: dict[str, Any]) -> str:
    """A pipeline as YAML, as `apply` reads it."""
    import yaml

    whole = {"name": pipeline["name"], "description": pipeline["description"], **parts, "state": pipeline["state"]}
    if "sql" in whole:
        whole["sql"] = whole["sql"]["sql"]
    return str(yaml.safe_dump(whole, sort_keys=False, allow_unicode=True, width=120))
