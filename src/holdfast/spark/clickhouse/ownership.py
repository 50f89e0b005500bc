"""Which run owns a scope, as the server knows it.

The one rule (docs/safety.md, rule 17): the fence is compared before an insert is run, not while it runs. So whoever takes a scope
over kills the inserts that passed the comparison before, and waits until none runs.
"""

from threading import Event
from typing import Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.keeper import compare_and_set, raise_number
from holdfast.spark.clickhouse.errors import BatchBlockedError
from holdfast.spark.clickhouse.keeper_statements import KeeperScopeKey
from holdfast.spark.clickhouse.runs import Run, admit, check_newest
from holdfast.spark.clickhouse.scopes import WriteIdentity
from holdfast.spark.clickhouse.statements import ScopeKey
from holdfast.vocabulary.clock import Clock

_POLL_MS: Final = 50
_WAIT_BEYOND_MS: Final = 10_000


def known_runs(client: ClickHouseClient, key: ScopeKey, run: str) -> list[Run]:
    """The runs of a scope that matter to one of them: itself, and the greatest of each query and generation."""
    found = client.rows(key.read_runs(run))
    return [Run(int(generation), int(epoch), name, query) for generation, epoch, name, query in found]


def take_ownership(client: ClickHouseClient, key: ScopeKey, identity: WriteIdentity) -> tuple[Run, list[Run]]:
    """This run, added if it is new, and those that matter to it. `RunFencedError`, `GenerationFencedError`: it was replaced."""

    def attempt() -> tuple[Run, list[Run]]:
        known = known_runs(client, key, identity.run)
        own = admit(known, identity, resource=str(key))
        if own not in known:
            client.command(key.add_run(own))
            known = known_runs(client, key, identity.run)
            check_newest(own, max(known), resource=str(key))
        return own, known

    own, known = compare_and_set(attempt, f"the runs of {key}")  # in Keeper, another may have claimed the number
    if isinstance(key, KeeperScopeKey):
        raise_number(client, key.database, key.fence_key, own.epoch)
    return own, known


def end_other_inserts(client: ClickHouseClient, key: ScopeKey, *, clock: Clock, timeout_ms: int) -> None:
    """Kill the inserts of the scope, and wait. Terminates: the server ends an insert at its time limit."""
    client.command(key.kill_inserts())
    until_ms = clock.boot_ms() + timeout_ms + _WAIT_BEYOND_MS
    while running := int(client.value(key.count_inserts())):
        if clock.boot_ms() >= until_ms:
            raise BatchBlockedError(str(key), f"{running} earlier inserts are still running")
        Event().wait(_POLL_MS / 1_000)
