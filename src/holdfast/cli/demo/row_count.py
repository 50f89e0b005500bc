"""How many rows have arrived, and of how many distinct offsets: counted in ClickHouse itself."""

from dataclasses import dataclass

from holdfast.cli.clickhouse_access import ClickHouseAccess
from holdfast.clickhouse.error_codes import ClickHouseErrorCode
from holdfast.clickhouse.errors import ClickHouseError, ClickHouseUnreachableError
from holdfast.clickhouse.quoting import quote_identifier, quote_literal
from holdfast.vocabulary.errors import UnavailableError


@dataclass(frozen=True, slots=True)
class RowCount:
    """Rows in the table, and the number of distinct offsets among them."""

    rows: int
    distinct: int


class CountedTable:
    """A table of a ClickHouse."""

    def __init__(self, access: ClickHouseAccess, name: str) -> None:
        self._access, self._name = access, name

    def count(self) -> RowCount:
        """The count now; zero while the table does not exist."""
        sql = f"SELECT count(), uniqExact(_topic, _partition, _offset) FROM {quote_identifier(self._name)}"  # noqa: S608
        try:
            rows, distinct = self._access.query(sql).split()
        except ClickHouseUnreachableError as error:
            raise UnavailableError(f"ClickHouse at {error.address}", error.text) from None
        except ClickHouseError as error:
            if error.code == ClickHouseErrorCode.UNKNOWN_TABLE:
                return RowCount(0, 0)
            raise UnavailableError(f"ClickHouse at {error.address}", error.reason) from None
        return RowCount(int(rows), int(distinct))

    def drop(self) -> None:
        """Remove the table and those the pipeline created beside it."""
        own = f"database = currentDatabase() AND startsWith(name, {quote_literal(self._name)})"
        sql = f"SELECT name FROM system.tables WHERE {own}"  # noqa: S608 - quoted above
        for name in self._access.query(sql).decode().split():
            self._access.query(f"DROP TABLE IF EXISTS {quote_identifier(name)} SYNC")
