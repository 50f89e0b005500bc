"""Staged rows into the table: fenced inserts with tokens, and how one that may have been done already is resolved.

The one rule: a token alone proves nothing (the server forgets it, or has recorded it without the rows). Where rows have
provenance, they are counted before and after; where they have none, the token is all there is.
"""

# ruff: noqa: S608 (every name and text goes through `quoting`)

from collections.abc import Callable
from typing import Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.insert_settings import insert_settings
from holdfast.clickhouse.quoting import qualified_name, quote_identifier, quote_literal
from holdfast.clickhouse.replicas import quorum_settings, sync_replica
from holdfast.spark.clickhouse.batches import Content, Insert, Plan
from holdfast.spark.clickhouse.errors import BatchBlockedError
from holdfast.spark.clickhouse.options import ClickHouseOptions
from holdfast.spark.clickhouse.runs import Run
from holdfast.spark.clickhouse.statements import ScopeKey, staged_rows
from holdfast.spark.clickhouse.table_identity import keep_identity
from holdfast.spark.clickhouse.target import Target
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.random import Random

SPARE_TOKENS: Final = 3
"""Further tokens, one for each time the server is killed between recording a token and storing the same rows."""
GENERATION_BATCHES: Final = 1 << 40
"""A version is generation × this + batch, so that every later batch has a greater one."""


class BatchInserter:
    """Inserts the rows of one batch. `own` None: nobody else can write in this scope, so there is no fence."""

    def __init__(
        self,
        client: ClickHouseClient,
        target: Target,
        options: ClickHouseOptions,
        *,
        key: ScopeKey,
        own: Run | None,
        batch: int,
        random: Random,
    ) -> None:
        self._client, self._target, self._options = client, target, options
        self._key, self._own, self._batch, self._random = key, own, batch, random
        self._generation = own.generation if own is not None else 0

    def insert_all(self, plan: Plan, *, resumed: bool) -> None:
        """Insert everything. `resumed`: some of it may be in the table."""
        for number, insert in enumerate(plan.inserts):
            may_be_there = resumed or self._target.in_keeper  # a zombie may have read a fence that is a moment old
            if may_be_there and self._target.provenance and self._target.countable:
                self._insert_missing(plan, number, insert)
            else:
                self._insert(self._target.full_name, plan, number, insert)
            failpoints.reached("spark-clickhouse.piece-inserted")

    def check_content(self, content: Content) -> None:
        """Whether the table has exactly these rows of the batch, where a zombie may have read a fence that is a moment old."""
        if not (self._target.in_keeper and self._target.provenance and self._target.countable):
            return
        names = ", ".join(map(quote_identifier, self._target.columns))
        query = f"SELECT count(), sum(cityHash64(tuple({names}))) FROM {self._target.full_name} WHERE {self._place}"
        found = Content(*map(int, self._client.rows(query)[0]))
        if found != content:
            raise BatchBlockedError(
                f"batch {self._batch} of {self._key}",
                f"the table has {found} of it, and {content} were recorded: another run wrote at the same moment, or a TTL deletes "
                "them. Delete the batch's rows from the table, and start again",
            )

    def has_none_of_batch(self) -> bool:
        """Whether the table is known to have no row of this batch."""
        return self._target.provenance and self._target.countable and not self._stored(self._place)

    def replace_table(self, plan: Plan, *, check: Callable[[], None]) -> None:
        """Replace the table's content: the server exchanges two tables at once; `check` is made right before.

        An exchange cannot carry the fence. So each run has a table of its own for it, and a newer run drops those of older ones:
        what is exchanged too late does not exist, or is replaced by what the newer run exchanges after it.
        """
        for (left,) in self._client.rows(self._key.list_next_tables(hours=self._options.staged_hours)):
            self._client.command(f"DROP TABLE IF EXISTS {qualified_name(self._target.database, left)} SYNC")
        epoch = self._own.epoch if self._own is not None else 0
        following = f"{self._key.next_tables}{epoch}"
        next_name = qualified_name(self._target.database, following)
        self._client.command(f"CREATE TABLE {next_name} AS {self._target.full_name}")
        for number, insert in enumerate(plan.inserts):
            self._insert(next_name, plan, number, insert)
        check()
        keep_identity(self._client, self._target.database, self._target.table, following)
        failpoints.reached("spark-clickhouse.exchanging")
        self._client.command(f"EXCHANGE TABLES {self._target.full_name} AND {next_name}")
        self._client.command(f"DROP TABLE IF EXISTS {next_name} SYNC")

    @property
    def _place(self) -> str:
        """The condition on rows of this batch."""
        scope = quote_literal(self._key.scope)
        return f"_scope = {scope} AND _generation = {self._generation} AND _batch = {self._batch}"

    def _stored(self, place: str) -> int:
        if self._target.replicated:  # another replica may have stored them
            self._client.command(sync_replica(self._target.full_name))
        return int(self._client.value(f"SELECT count() FROM {self._target.full_name} WHERE {place}"))

    def _insert_missing(self, plan: Plan, number: int, insert: Insert) -> None:
        """Each partition of the table has its rows or none: if some are missing, the others are deleted, and all are inserted."""
        place = f"{self._place} AND _piece = {number}"
        for spare in range(SPARE_TOKENS + 1):
            stored = self._stored(place)
            if stored == insert.rows:
                return
            if stored:
                self._client.command(self._delete(place))
            # The first token is the one under which the rows may still arrive; once they were deleted, it would drop them.
            self._insert(self._target.full_name, plan, number, insert, spare=spare + bool(stored))
        if self._stored(place) != insert.rows:
            raise BatchBlockedError(
                f"batch {self._batch} of {self._key}",
                f"the table does not have its rows after {SPARE_TOKENS + 1} inserts: "
                "does a row policy hide them, or a TTL delete them at once?",
            )

    def _delete(self, place: str) -> str:
        """Delete rows of this batch, unless a greater run is known when the server does so."""
        fence = f" AND {self._key.is_newest(self._own)}" if self._own is not None else ""
        settings = f"SETTINGS mutations_sync = {self._target.mutations_sync}"
        return f"ALTER TABLE {self._target.full_name} DELETE WHERE {place}{fence} {settings}"

    def _insert(self, name: str, plan: Plan, number: int, insert: Insert, *, spare: int = 0) -> None:
        columns = {quote_identifier(column): quote_identifier(column) for column in self._target.columns}
        columns |= self._filled(number)
        conditions = [staged_rows(plan.staged_batch, insert.tokens)]
        if self._own is not None:
            conditions.append(self._key.fence(self._own))
        statement = (
            f"INSERT INTO {name} ({', '.join(columns)}) SELECT {', '.join(columns.values())} "
            f"FROM {qualified_name(self._target.database, plan.staged_table)} WHERE {' AND '.join(conditions)}"
        )
        token = f"{self._key.scope}:{self._generation}:{self._batch}:{number}" + (f":{spare}" if spare else "")
        query = f"{self._key.queries}{self._batch}:{number}:{self._random.token()}"
        settings = insert_settings(token, query, timeout_ms=self._options.insert_timeout_ms)
        if self._target.replicated:
            settings |= quorum_settings(self._options.insert_quorum, timeout_ms=self._options.insert_timeout_ms)
        self._client.insert(statement, b"", settings=settings)  # unlike `command`, it is never sent again by itself

    def _filled(self, number: int) -> dict[str, str]:
        """The columns that the sink fills, as expressions."""
        filled = {}
        if self._options.version_column:
            version = self._generation * GENERATION_BATCHES + self._batch
            filled[quote_identifier(self._options.version_column)] = f"toUInt64({version})"
        if self._target.provenance:
            filled |= {
                "_scope": quote_literal(self._key.scope),
                "_generation": str(self._generation),
                "_batch": str(self._batch),
                "_piece": str(number),
            }
        return filled
