"""The next mapping, when records have fields that become columns. No I/O."""

from collections.abc import Iterable

from holdfast.pipeline.model.column_mapping import COLUMNS_MAX, Column, Mapping


def next_mapping(mapping: Mapping, wanted: Iterable[Column]) -> Mapping | None:
    """The mapping with the columns it lacks; None: it lacks none, somebody else was faster.

    Ranges ask by themselves, so two may name the same field; the first wins. A name that is taken by another path is left out: it
    comes again with a name of its own, once the mapping knows the first.
    """
    paths = {column.field_path for column in mapping.columns}
    names = {column.column for column in mapping.columns}
    added: list[Column] = []
    for column in wanted:
        if column.field_path in paths or column.column in names or len(names) >= COLUMNS_MAX:
            continue
        added.append(column)
        paths.add(column.field_path)
        names.add(column.column)
    return Mapping((*mapping.columns, *added), mapping.version + 1, mapping.ignored) if added else None
