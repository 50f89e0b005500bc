"""The next mapping, when fields of records become columns. No I/O."""

from collections.abc import Iterable

from holdfast.pipeline.model.column_mapping import COLUMNS_MAX, Column, Mapping


def next_mapping(mapping: Mapping, requested: Iterable[Column]) -> Mapping | None:
    """The mapping with the columns it lacks; None: it lacks none, because another slot has added them.

    Ranges are surveyed independently, so two may request the same field; the first wins. A column name that another path has taken
    is left out: the next survey requests it under a name of its own.
    """
    paths = {column.field_path for column in mapping.columns}
    names = {column.column for column in mapping.columns}
    added: list[Column] = []
    for column in requested:
        if column.field_path in paths or column.column in names or len(names) >= COLUMNS_MAX:
            continue
        added.append(column)
        paths.add(column.field_path)
        names.add(column.column)
    return Mapping((*mapping.columns, *added), mapping.version + 1, mapping.ignored) if added else None
