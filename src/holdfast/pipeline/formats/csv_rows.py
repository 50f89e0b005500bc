"""CSV: a record is one row, and its fields are texts. Needs `pyarrow` (extra `arrow`).

The one rule: rows are parsed together, and count only if there are as many as records. A record that spoils a batch is found by
halving it, so that every record is read by the same parser with the same outcome, alone or among others.
"""

from collections.abc import Sequence
from typing import Any, Final

from holdfast.pipeline.formats.decoded import NO_VALUE, BadValueError, Decoded, Payloads
from holdfast.pipeline.model.definition import CsvOptions

REASON_CHARS_MAX: Final = 300
_BOM: Final = b"\xef\xbb\xbf"


class CsvDecoder:
    """Rows with these options."""

    def __init__(self, options: CsvOptions) -> None:
        self._options = options

    def decode(self, payloads: Payloads) -> Decoded:
        """Decode a batch to objects of texts and nulls."""
        found = Decoded([None] * len(payloads))
        for names, rows, lines in self._groups(payloads, found):
            self._halve(names, rows, lines, found)
        found.bad.sort()
        return found

    def table(self, payloads: Sequence[bytes | None]) -> Any | None:
        """The columns of a batch as texts; None: not all records are rows of the same columns."""
        found = Decoded([])
        groups = self._groups(payloads, found)
        if found.bad or len(groups) != 1:
            return None
        names, _, lines = groups[0]
        try:
            return self._parsed(names, lines)
        except BadValueError:
            return None

    def _groups(self, payloads: Payloads, found: Decoded) -> list[tuple[tuple[str, ...], list[int], list[bytes]]]:
        """Names, numbers and rows of records that have the same names."""
        groups: dict[bytes, tuple[tuple[str, ...], list[int], list[bytes]]] = {}
        refused: dict[bytes, str] = {}
        for row, payload in enumerate(payloads):
            if payload is None:
                found.bad.append((row, NO_VALUE))
                continue
            head, line = self._split(_bare(payload))
            if head not in groups and head not in refused:
                try:
                    groups[head] = (self._names(head), [], [])
                except BadValueError as error:
                    refused[head] = str(error)
            if head in refused:
                found.bad.append((row, refused[head]))
            else:
                groups[head][1].append(row)
                groups[head][2].append(line)
        return list(groups.values())

    def _split(self, payload: bytes) -> tuple[bytes, bytes]:
        if not self._options.header:
            return b"", payload
        head, _, line = payload.partition(b"\n")
        return head.removesuffix(b"\r"), line

    def _names(self, head: bytes) -> tuple[str, ...]:
        if not self._options.header:
            return self._options.columns
        row = self._parsed((), [head]).to_pylist()[0]
        names = tuple(str(name or "") for name in row.values())
        if len(set(names)) < len(names) or "" in names:
            raise BadValueError("not CSV: the names in its first line are not unique, or one is empty")
        return names

    def _halve(self, names: tuple[str, ...], rows: list[int], lines: list[bytes], found: Decoded) -> None:
        try:
            for row, value in zip(rows, self._parsed(names, lines).to_pylist(), strict=True):
                found.values[row] = value
        except BadValueError as error:
            if len(rows) == 1:
                found.bad.append((rows[0], str(error)))
                return
            half = len(rows) // 2
            self._halve(names, rows[:half], lines[:half], found)
            self._halve(names, rows[half:], lines[half:], found)

    def _parsed(self, names: Sequence[str], lines: Sequence[bytes]) -> Any:
        """As many rows as lines. A newline in a value, or a quote that is not closed, would change their number."""
        import pyarrow as pa
        from pyarrow import csv

        if len(lines) > 1 and any(b"\n" in line or b"\r" in line for line in lines):
            raise BadValueError("not CSV: rows with newlines are parsed alone")
        # Arrow takes a byte order mark from the first line, and from no other.
        options, text = self._options, _BOM + b"\n".join(lines) + b"\n"
        try:
            table = csv.read_csv(
                pa.BufferReader(text),
                read_options=csv.ReadOptions(
                    use_threads=False,
                    block_size=len(text) + 1,
                    column_names=list(names),
                    autogenerate_column_names=not names,
                ),
                parse_options=csv.ParseOptions(
                    delimiter=options.delimiter,
                    quote_char=options.quote or False,
                    escape_char=options.escape or False,
                    newlines_in_values=True,
                    ignore_empty_lines=False,
                ),
                convert_options=csv.ConvertOptions(
                    column_types={name: pa.string() for name in names or ()},
                    null_values=list(options.nulls),
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise BadValueError(f"not CSV: {str(error)[:REASON_CHARS_MAX]}") from None
        if table.num_rows != len(lines):
            raise BadValueError(f"not CSV: {table.num_rows} rows in a record, or a quote that is not closed")
        return table


def _bare(payload: bytes) -> bytes:
    """Without a byte order mark before it and a newline behind it."""
    return payload.removeprefix(_BOM).removesuffix(b"\n").removesuffix(b"\r")
