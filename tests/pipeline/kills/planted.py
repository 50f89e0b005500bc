"""Bugs that tests plant in workers, drivers and tasks, to see that the suite finds them. Nothing of it is in the product.

`install` wraps functions of the product in every process that was started for it; a bug is there while a file of its name is in
the folder that all of them share. So one cluster plays every scenario with and without each bug.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
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
    """In this process. Imports what it wraps."""
    planted = Planted(folder)
    _without_pipeline(planted, wrap)
    _without_hash(planted, wrap)
    _without_fence(planted, wrap)
    _trusting_tokens(planted, wrap)
    _mapping_otherwise(planted, wrap)


def _without_pipeline(planted: Planted, wrap: Wrap) -> None:
    """Rows are looked for as if every pipeline had a table of its own."""
    from holdfast.pipeline.sinks.clickhouse import statements
    from holdfast.pipeline.sinks.clickhouse.stream_sink import ClickHouseStreamSink

    of_pipeline, piece_insert = statements.of_pipeline, ClickHouseStreamSink._piece_insert

    def of_any_pipeline(*args: Any) -> str:
        condition = of_pipeline(*args)
        return condition.partition(" AND ")[2] if planted.has(PROVENANCE) else condition

    def insert_of_any_pipeline(*args: Any) -> Any:
        insert = piece_insert(*args)
        return replace(insert, place=insert.place.partition(" AND ")[2]) if planted.has(PROVENANCE) else insert

    wrap(statements, "of_pipeline", of_any_pipeline)
    wrap(ClickHouseStreamSink, "_piece_insert", insert_of_any_pipeline)


def _without_hash(planted: Planted, wrap: Wrap) -> None:
    """A range that is mapped again is written, whatever it was before."""
    from holdfast.pipeline.driver import mapped_ranges

    same = mapped_ranges._same
    wrap(mapped_ranges, "_same", lambda *args: planted.has(HASH) or same(*args))


def _without_fence(planted: Planted, wrap: Wrap) -> None:
    """An insert that no epoch is too old for."""
    from holdfast.pipeline.sinks.clickhouse import statements

    fenced_insert = statements.fenced_insert

    def unfenced(*args: Any, epoch: int, **options: Any) -> str:
        return fenced_insert(*args, epoch=_NEVER if planted.has(FENCE) else epoch, **options)

    wrap(statements, "fenced_insert", unfenced)


def _trusting_tokens(planted: Planted, wrap: Wrap) -> None:
    """An insert that was sent counts as stored: its token is known."""
    from holdfast.pipeline.sinks.clickhouse import inserts

    stored, sent = inserts._stored, set[str]()

    def stored_if_sent(connection: Any, insert: Any) -> tuple[int, int]:
        if planted.has(TOKEN) and insert.query in sent:
            made: tuple[int, int] = insert.made
            return made
        sent.add(insert.query)
        return stored(connection, insert)

    wrap(inserts, "_stored", stored_if_sent)


def _mapping_otherwise(planted: Planted, wrap: Wrap) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    from holdfast.pipeline.driver import mapped_ranges
    from holdfast.pipeline.mapping.transform import map_records

    def map_otherwise(*args: Any) -> Any:
        mapped = map_records(*args)
        if not planted.has(OTHER_MAPPING):
            return mapped
        rows = mapped.rows
        at = rows.schema.get_field_index("amount")
        amounts = pc.add(rows.column(at), pa.scalar(1, rows.column(at).type))
        return replace(mapped, rows=rows.set_column(at, rows.schema.field(at), amounts))

    wrap(mapped_ranges, "map_records", map_otherwise)
