"""A ClickHouse that only writes down what it is sent, for decisions about tables that no server here can have."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.errors import ClickHouseError


@dataclass
class RecordingClickHouse:
    """Writes down what it is sent; answers by the first word that a query has."""

    answers: dict[str, Sequence[Sequence[Any]]] = field(default_factory=dict)
    refuses: dict[str, int] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    settings: list[dict[str, Any]] = field(default_factory=list)

    def rows(self, query: str) -> Sequence[Sequence[Any]]:
        self._take(query)
        return next((answer for word, answer in self.answers.items() if word in query), [])

    def value(self, query: str) -> Any:
        return self.rows(query)[0][0]

    def command(self, statement: str, **_: Any) -> None:
        self._take(statement)

    def insert(self, statement: str, data: Any, *, settings: dict[str, Any]) -> None:
        self._take(statement)
        self.settings.append(settings)

    def close(self) -> None:
        """It has no connection."""

    @property
    def address(self) -> str:
        return "h"

    def _take(self, statement: str) -> None:
        self.sent.append(statement)
        for word, code in self.refuses.items():
            if word in statement:
                raise ClickHouseError("h", f"refused: {word}", code)

    @property
    def client(self) -> ClickHouseClient:
        return cast("ClickHouseClient", self)
