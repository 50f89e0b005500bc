"""The driver's part: own the scope, record the batch, insert its rows, record that it is done.

The one rule: a batch is recorded with its content before its first row is visible, and every step carries the fence. A commit that
is repeated, by this run or a later one, finds the record and does what is left.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from threading import Event
from typing import Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.errors import ClickHouseError, ClickHouseUnreachableError
from holdfast.clickhouse.quoting import qualified_name
from holdfast.spark.clickhouse import statements
from holdfast.spark.clickhouse.batch_records import last_batch, record_batch
from holdfast.spark.clickhouse.batches import (
    BatchRecord,
    CommitStep,
    Content,
    Plan,
    RowPiece,
    next_step,
    plan_inserts,
)
from holdfast.spark.clickhouse.errors import BatchBlockedError
from holdfast.spark.clickhouse.inserts import BatchInserter
from holdfast.spark.clickhouse.options import ClickHouseOptions
from holdfast.spark.clickhouse.ownership import (
    end_other_inserts,
    known_runs,
    take_ownership,
)
from holdfast.spark.clickhouse.runs import Run, check_newest
from holdfast.spark.clickhouse.scopes import WriteIdentity
from holdfast.spark.clickhouse.stager import RowStager, StagedRows, read_batches
from holdfast.spark.clickhouse.statements import ScopeKey
from holdfast.spark.clickhouse.target import Target
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UsageError
from holdfast.vocabulary.random import Random

_PAUSE_MS: Final = 200
_PAUSE_MS_MAX: Final = 5_000
_log: Final = logging.getLogger(__name__)


class Committer:
    """Commits batches to one table. `replaces`: each batch is the table's whole content."""

    def __init__(
        self,
        client: ClickHouseClient,
        target: Target,
        options: ClickHouseOptions,
        *,
        replaces: bool,
        clock: Clock,
        random: Random,
    ) -> None:
        self._client, self._target, self._options = client, target, options
        self._replaces, self._clock, self._random = replaces, clock, random

    def commit(self, identity: WriteIdentity, staged: Sequence[StagedRows]) -> None:
        """Make the staged rows visible, once. Repeated while the server does not answer, up to `stallMsMax`."""
        until_ms, pause_ms, repeated = self._clock.boot_ms() + self._options.stall_ms_max, _PAUSE_MS, False
        while True:
            try:
                return self._commit(identity, staged, repeated=repeated)
            except ClickHouseUnreachableError as error:
                if self._clock.boot_ms() + pause_ms > until_ms:
                    raise
                _log.warning("batch %d: %s; trying again in %d ms", identity.batch, error.reason, pause_ms)
            Event().wait(pause_ms / 1_000)
            pause_ms, repeated = min(2 * pause_ms, _PAUSE_MS_MAX), True

    def _commit(self, identity: WriteIdentity, staged: Sequence[StagedRows], *, repeated: bool) -> None:
        if identity.scope is None:
            self._commit_unnamed(identity, staged, repeated=repeated)
            return
        key = self._target.scope_key(identity.scope.name, self._target.identity(self._client))
        own, known = take_ownership(self._client, key, identity)
        try:
            self._commit_owned(key, own, known, identity, staged, repeated=repeated)
        except ClickHouseError:  # the fence, or a table that a newer run has dropped
            check_newest(own, max(known_runs(self._client, key, own.run)), resource=str(key))
            raise

    def _commit_owned(
        self,
        key: ScopeKey,
        own: Run,
        known: Sequence[Run],
        identity: WriteIdentity,
        staged: Sequence[StagedRows],
        *,
        repeated: bool,
    ) -> None:
        last = self._take_over(key, own, known, repeated=repeated)
        failpoints.reached("spark-clickhouse.owned")
        if last is not None and not last.done and last.batch < identity.batch and not self._replaces:
            self._finish(key, own, last)
        plan, content = self._plan(identity, staged)
        if not content.rows and not self._replaces and (last is None or last.batch != identity.batch):
            return
        record = BatchRecord(batch=identity.batch, done=False, epoch=own.epoch, run=own.run, content=content, plan=plan)
        inserter = self._inserter(key, own, identity.batch)
        step = self._next_step(key, last, record, inserter)
        if last is not None and step is CommitStep.RESUME:
            record = replace(record, content=last.content, plan=last.plan)
        if step is not CommitStep.SKIP:
            self._write(key, own, record, inserter, resumed=step is CommitStep.RESUME or repeated)
        used = [plan, last.plan] if last is not None and last.batch == identity.batch else [plan]
        for each in {(each.staged_table, each.staged_batch) for each in used}:
            self._drop_staged(*each)

    def _finish(self, key: ScopeKey, own: Run, begun: BatchRecord) -> None:
        """Write the rest of a batch that nobody repeats: a part of it may be visible."""
        if not self._is_staged(begun.plan):
            raise self._staged_is_gone(_batch_title(begun.batch, key))
        record = replace(begun, epoch=own.epoch, run=own.run)
        self._write(key, own, record, self._inserter(key, own, begun.batch), resumed=True)
        _log.warning("%s was begun and not repeated; it was finished", _batch_title(begun.batch, key))
        self._drop_staged(begun.plan.staged_table, begun.plan.staged_batch)

    def _take_over(self, key: ScopeKey, own: Run, known: Sequence[Run], *, repeated: bool) -> BatchRecord | None:
        """The last batch. If this run has not recorded it, another may be at work still: its inserts are ended first."""
        last = last_batch(self._client, key, own.generation)
        if not repeated and last is not None and (last.epoch, last.run) == (own.epoch, own.run):
            return last
        end_other_inserts(self._client, key, clock=self._clock, timeout_ms=self._options.insert_timeout_ms)
        last = last_batch(self._client, key, own.generation)
        if last is None:
            self._clear_earlier_generations(key, own, known)
        return last

    def _next_step(
        self, key: ScopeKey, last: BatchRecord | None, record: BatchRecord, inserter: BatchInserter
    ) -> CommitStep:
        what, keep = _batch_title(record.batch, key), self._options.on_different_replay == "keep"
        step = next_step(last, record.batch, record.content, what=what, keep=keep, replaces=self._replaces)
        if last is None or step is not CommitStep.RESUME or self._is_staged(last.plan):
            return step
        if inserter.has_none_of_batch():
            return CommitStep.BEGIN  # nothing of it is visible: what is staged now is as good
        raise self._staged_is_gone(what)

    def _staged_is_gone(self, what: str) -> BatchBlockedError:
        return BatchBlockedError(
            what,
            f"it was begun, and what was staged for it is gone (stagedHours is {self._options.staged_hours}) or at another "
            "replica. Delete the batch's rows from the table, if it has provenance, and start again; else compare them by hand",
        )

    def _write(self, key: ScopeKey, own: Run, record: BatchRecord, inserter: BatchInserter, *, resumed: bool) -> None:
        record_batch(self._client, key, own, record)
        failpoints.reached("spark-clickhouse.begun")
        if self._replaces:
            inserter.replace_table(record.plan, check=lambda: self._check_owner(key, own))
        else:
            inserter.insert_all(record.plan, resumed=resumed)
            inserter.check_content(record.content)
        failpoints.reached("spark-clickhouse.inserted")
        record_batch(self._client, key, own, replace(record, done=True))
        failpoints.reached("spark-clickhouse.done")

    def _commit_unnamed(self, identity: WriteIdentity, staged: Sequence[StagedRows], *, repeated: bool) -> None:
        """A batch write without an id: nobody can repeat it but this process, so nothing is recorded."""
        plan, content = self._plan(identity, staged)
        inserter = BatchInserter(
            self._client,
            self._target,
            self._options,
            key=ScopeKey(self._target.database, self._target.table, f"unnamed/{identity.run}"),
            own=None,
            batch=identity.batch,
            random=self._random,
        )
        if self._replaces:
            inserter.replace_table(plan, check=lambda: None)
        elif content.rows:
            inserter.insert_all(plan, resumed=repeated)
        self._drop_staged(plan.staged_table, plan.staged_batch)

    def _plan(self, identity: WriteIdentity, staged: Sequence[StagedRows]) -> tuple[Plan, Content]:
        """Stage what came inline; look that everything is there; plan the inserts."""
        pieces = [piece for each in staged for piece in each.pieces]
        inline = [batch for each in staged if each.inline for batch in read_batches(each.inline)]
        if inline:
            stager = RowStager(self._client, self._target, self._options, identity.staged_batch, self._random)
            pieces.append(stager.stage(inline))
        table = self._target.staged
        plan = Plan(table.name, identity.staged_batch, list(plan_inserts(pieces, self._options.insert_rows_max)))
        if not pieces:
            return plan, Content(0, 0)
        return plan, self._content(identity, pieces)

    def _content(self, identity: WriteIdentity, pieces: Sequence[RowPiece]) -> Content:
        tokens = [piece.token for piece in pieces]
        rows, hashed = self._client.rows(self._target.staged.content(identity.staged_batch, tokens))[0]
        wanted = sum(piece.rows for piece in pieces)
        if int(rows) != wanted:
            raise BatchBlockedError(f"batch {identity.batch}", f"{rows} of {wanted} staged rows are left; start again")
        return Content(int(rows), int(hashed))

    def _is_staged(self, plan: Plan) -> bool:
        tokens = [token for insert in plan.inserts for token in insert.tokens]
        exists = self._client.rows(f"EXISTS TABLE {qualified_name(self._target.database, plan.staged_table)}")[0][0]
        if not exists:
            return False
        query = statements.count_staged(self._target.database, plan.staged_table, plan.staged_batch, tokens)
        return int(self._client.value(query)) == sum(insert.rows for insert in plan.inserts)

    def _clear_earlier_generations(self, key: ScopeKey, own: Run, known: Sequence[Run]) -> None:
        if self._replaces or all(each.generation >= own.generation for each in known):
            return
        if self._options.on_new_generation == "keep":
            _log.warning("%s: generation %d begins; the rows of earlier ones stay", key, own.generation)
            return
        if not self._target.provenance:
            raise UsageError(
                f"{key}: generation {own.generation} begins, and the rows of earlier ones cannot be told apart: the table has no "
                "provenance columns. Empty the table and give onNewGeneration=keep"
            )
        if not self._client.rows(key.find_generations_before(own.generation)):
            return  # they are deleted already, or had no rows
        self._client.command(key.delete_generations_before(own.generation, mutations_sync=self._target.mutations_sync))
        _log.warning("%s: generation %d begins; the rows of earlier ones were deleted", key, own.generation)

    def _check_owner(self, key: ScopeKey, own: Run) -> None:
        check_newest(own, max(known_runs(self._client, key, own.run)), resource=str(key))

    def _inserter(self, key: ScopeKey, own: Run, batch: int) -> BatchInserter:
        return BatchInserter(
            self._client, self._target, self._options, key=key, own=own, batch=batch, random=self._random
        )

    def _drop_staged(self, table: str, staged_batch: str) -> None:
        try:
            self._client.command(statements.drop_staged(self._target.database, table, staged_batch))
        except (ClickHouseError, ClickHouseUnreachableError) as error:  # the server deletes it when it is old
            _log.warning("cannot delete staged rows: %s", error.reason)


def _batch_title(batch: int, key: ScopeKey) -> str:
    return f"batch {batch} of {key}"
