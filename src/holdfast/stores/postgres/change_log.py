"""The change log: pages of commits in version order. NOTIFY only triggers a read."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from holdfast.contracts.store import Change, Changed, Entry
from holdfast.stores.change_feed import ChangeLogPage
from holdfast.stores.postgres.client import PostgresClient

if TYPE_CHECKING:
    from holdfast.stores.postgres.connection_pool import Connection, Row

# One statement is one snapshot: it shows what was pruned together with what is left.
_PAGE: Final = """
SELECT h.version AS head, h.incarnation, m.gone_until, c.version, c.key, c.value, c.session, c.deleted
FROM {schema}.head h CROSS JOIN {schema}.meta m
LEFT JOIN {schema}.changes c ON c.version > $1 AND c.version <= $2
ORDER BY c.version, c.key"""


async def read_page(
    client: PostgresClient, after: int, connection: "Connection | None" = None
) -> tuple[ChangeLogPage, int]:
    """The commits after a version, at most one page, and the store's version in the same snapshot."""
    known_version = client.guard.check()
    sql, until = client.settings.sql(_PAGE), after + client.settings.log_page_commits
    rows: Sequence[Row]
    if connection is None:
        rows = await client.query(sql, after, until)
    else:
        rows = await connection.fetch(sql, after, until)
    if not rows:
        client.fail_store_missing("its tables are empty")
    head, gone_until = rows[0]["head"], rows[0]["gone_until"]
    client.guard.observe(head, known_version=known_version, incarnation=rows[0]["incarnation"])
    until = min(until, head)
    commits = _commits(rows)
    if until > after and (not commits or commits[-1].version < until):
        commits.append(Changed(until, ()))  # commits without changes leave no row; this marks how far the page reaches
    return ChangeLogPage(tuple(commits), gone_until), head


def _commits(rows: "Sequence[Row]") -> list[Changed]:
    commits: list[Changed] = []
    changes: list[Change] = []
    last = 0
    for _, _, _, version, key, value, session, deleted in rows:
        if version is None:
            break  # the page is empty
        if version != last and changes:
            commits.append(Changed(last, tuple(changes)))
            changes = []
        last = version
        changes.append(Change(key, None if deleted else Entry(key, value.encode(), version, session)))
    if changes:
        commits.append(Changed(last, tuple(changes)))
    return commits
