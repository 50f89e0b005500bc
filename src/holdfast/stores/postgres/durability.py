"""Durability: what a server must be set to before it may be trusted with leases, checked at open.

A server that may lose an acknowledged commit would give one lease to two holders. It is refused, unless the URL says
`?unsafe=1`; then what is unsafe is said in the store's facts.
"""

from typing import TYPE_CHECKING, Final

from holdfast.vocabulary.errors import InvalidError

if TYPE_CHECKING:
    from holdfast.stores.postgres.connection_pool import Connection

_VERSION_MIN: Final = 13
_QUESTION: Final = """
SELECT current_setting('server_version_num')::int / 10000 AS major, current_setting('server_version') AS version,
       current_setting('server_encoding') AS encoding, pg_is_in_recovery() AS is_standby,
       current_setting('synchronous_commit') AS synchronous_commit, current_setting('fsync') AS fsync,
       current_setting('full_page_writes') AS full_page_writes,
       current_setting('synchronous_standby_names') AS standbys"""

# setting → (values that keep every acknowledged commit, what the others lose)
_SAFE: Final = {
    "synchronous_commit": (("on", "remote_apply"), "an acknowledged commit is lost in a crash or a failover"),
    "fsync": (("on",), "the database is destroyed by a crash of the host"),
    "full_page_writes": (("on",), "pages may be torn by a crash of the host"),
}


async def check_durability(connection: "Connection", service: str, *, unsafe: bool) -> tuple[str, str, tuple[str, ...]]:
    """What server it is, how durable it is, and what is wrong with it, if `unsafe` lets that pass."""
    row = await connection.fetchrow(_QUESTION)
    assert row is not None
    if row["major"] < _VERSION_MIN:
        raise InvalidError(f"version of {service}", row["version"], f"{_VERSION_MIN} or newer")
    if row["encoding"] != "UTF8":
        raise InvalidError(f"encoding of {service}", row["encoding"], "UTF8: CREATE DATABASE … ENCODING 'UTF8'")
    if row["is_standby"]:
        raise InvalidError(f"role of {service}", "standby", "the primary")
    notes = []
    for name, (safe, loss) in _SAFE.items():
        if row[name] in safe:
            continue
        if not unsafe:
            raise InvalidError(
                f"{name} of {service}", row[name], f"{' or '.join(safe)}: else {loss} (?unsafe=1 accepts)"
            )
        notes.append(f"unsafe: {name} is {row[name]}: {loss}")
    if notes:
        durability = "unsafe: acknowledged commits may be lost"
    elif row["standbys"]:
        durability = f"each commit is flushed to disk here and on standbys ({row['standbys']})"
    else:
        durability = "each commit is flushed to disk on this server; standbys, if any, may lag"
    return f"PostgreSQL {row['version']}", durability, tuple(notes)
