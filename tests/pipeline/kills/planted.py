"""Bugs that tests plant in workers, drivers and tasks, to see that the suite finds them. Nothing of it is in the product.

Functions of the product are wrapped in every process that was started for it; a bug is there while a file of its name is in the
folder that all of them share. So one cluster plays every scenario with and without each bug.

The one rule: a process pays for what it uses. A module is wrapped when the process imports it, and not imported for it: Spark gives
a Python process of its own ten seconds to start, and a busy machine has none of them to spare.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

VARIABLE = "HOLDFAST_TEST_PLANTED_BUGS"
PROVENANCE = "provenance-without-pipeline"
HASH = "hash-not-compared"
FENCE = "fence-taken-out"
TOKEN = "token-without-rows"
BUGS = (PROVENANCE, HASH, FENCE, TOKEN)

OTHER_MAPPING = "mapping-differs"
"""No bug of the product: as if another version of a library mapped the same records to other rows."""

_NEVER = 1 << 62


class Planted:
    """The folder of the files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, name: str) -> bool:
        return (self._folder / f"planted.{name}").exists()

    def plant(self, name: str) -> None:
        (self._folder / f"planted.{name}").touch()

    def remove(self, name: str) -> None:
        (self._folder / f"planted.{name}").unlink(missing_ok=True)


Wrap = Callable[[Any, str, Any], None]


def install(folder: Path, wrap: Wrap = setattr) -> None:
    """In this process, now. Imports what it wraps."""
    for name in WRAPPED:
        _wrap(importlib.import_module(name), Planted(folder), wrap)


def install_on_import(folder: Path) -> None:
    """In this process, when it imports what is wrapped."""
    sys.meta_path.insert(0, _Finder(Planted(folder)))


def _wrap(module: ModuleType, planted: Planted, wrap: Wrap) -> None:
    for each in WRAPPED[module.__name__]:
        each(module, planted, wrap)


class _Finder(MetaPathFinder):
    """Finds the modules that are wrapped, by the finders after it."""

    def __init__(self, planted: Planted) -> None:
        self._planted = planted
        self._asked: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in WRAPPED or fullname in self._asked:
            return None
        self._asked.add(fullname)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._planted)
        return spec


class _Loader(Loader):
    """Wraps a module once it is loaded."""

    def __init__(self, loader: Loader, planted: Planted) -> None:
        self._loader, self._planted = loader, planted

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _wrap(module, self._planted, setattr)


def _rows_without_pipeline(statements: Any, planted: Planted, wrap: Wrap) -> None:
    """Rows are looked for as if every pipeline had a table of its own."""
    of_pipeline = statements.of_pipeline

    def of_any_pipeline(*args: Any) -> str:
        condition: str = of_pipeline(*args)
        return condition.partition(" AND ")[2] if planted.has(PROVENANCE) else condition

    wrap(statements, "of_pipeline", of_any_pipeline)


def _pieces_without_pipeline(stream_sink: Any, planted: Planted, wrap: Wrap) -> None:
    """The same, of a streaming query."""
    sink = stream_sink.ClickHouseStreamSink
    piece_insert = sink._piece_insert

    def insert_of_any_pipeline(*args: Any) -> Any:
        insert = piece_insert(*args)
        return replace(insert, place=insert.place.partition(" AND ")[2]) if planted.has(PROVENANCE) else insert

    wrap(sink, "_piece_insert", insert_of_any_pipeline)


def _without_hash(mapped_ranges: Any, planted: Planted, wrap: Wrap) -> None:
    """A range that is mapped again is written, whatever it was before."""
    same = mapped_ranges._same
    wrap(mapped_ranges, "_same", lambda *args: planted.has(HASH) or same(*args))


def _without_fence(statements: Any, planted: Planted, wrap: Wrap) -> None:
    """An insert that no epoch is too old for."""
    fenced_insert = statements.fenced_insert

    def unfenced(*args: Any, epoch: int, **options: Any) -> Any:
        return fenced_insert(*args, epoch=_NEVER if planted.has(FENCE) else epoch, **options)

    wrap(statements, "fenced_insert", unfenced)


def _trusting_tokens(inserts: Any, planted: Planted, wrap: Wrap) -> None:
    """An insert that was sent counts as stored: its token is known."""
    stored, sent = inserts._stored, set[str]()

    def stored_if_sent(connection: Any, insert: Any) -> Any:
        if planted.has(TOKEN) and insert.query in sent:
            return insert.made
        sent.add(insert.query)
        return stored(connection, insert)

    wrap(inserts, "_stored", stored_if_sent)


def _mapping_otherwise(mapped_ranges: Any, planted: Planted, wrap: Wrap) -> None:
    map_records = mapped_ranges.map_records

    def map_otherwise(*args: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        mapped = map_records(*args)
        if not planted.has(OTHER_MAPPING):
            return mapped
        rows = mapped.rows
        at = rows.schema.get_field_index("amount")
        amounts = pc.add(rows.column(at), pa.scalar(1, rows.column(at).type))
        return replace(mapped, rows=rows.set_column(at, rows.schema.field(at), amounts))

    wrap(mapped_ranges, "map_records", map_otherwise)


WRAPPED = {
    "holdfast.pipeline.sinks.clickhouse.statements": (_rows_without_pipeline, _without_fence),
    "holdfast.pipeline.sinks.clickhouse.stream_sink": (_pieces_without_pipeline,),
    "holdfast.pipeline.sinks.clickhouse.inserts": (_trusting_tokens,),
    "holdfast.pipeline.driver.mapped_ranges": (_without_hash, _mapping_otherwise),
}
"""By module, what is wrapped in it."""
