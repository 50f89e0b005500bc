"""Durability: the server settings that leases depend on, checked at open.

A server that may lose an acknowledged commit could grant one lease to two holders. It is refused, unless the URL has `?unsafe=1`;
then the store's facts list what is unsafe.
"""

from typing import TYPE_CHECKING, Final

from holdfast.vocabulary.errors import InvalidError

if TYPE_CHECKING:
    from holdfast.stores.postgres.connection_pool import Connection

_VERSION_MIN: Final = 13
_SETTINGS: Final = """
SELECT current_setting('server_version_num')::int / 10000 AS major, current_setting('server_version') AS version,
       current_setting('server_encoding') AS encoding, pg_is_in_recovery() AS is_standby,
       current_setting('synchronous_commit') AS synchronous_commit, current_setting('fsync') AS fsync,
       current_setting('full_page_writes') AS full_page_writes,
       current_setting('synchronous_standby_names') AS standbys"""

# setting → (values that keep every acknowledged commit, what the others lose)
_SAFE: Final = {
    "synchronous_commit": (("on", "remote_apply"), "an acknowledged commit is lost in a crash or a failover"),
    "fsync": (("on",), "a crash of the host destroys the database"),
    "full_page_writes": (("on",), "a crash of the host may tear pages"),
}


async def check_durability(connection: "Connection", service: str, *, unsafe: bool) -> tuple[str, str, tuple[str, ...]]:
    """The server's version, its durability, and what `unsafe` accepted."""
    row = await connection.fetchrow(_SETTINGS)
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
                f"{name} of {service}", row[name], f"{' or '.join(safe)}, otherwise {loss} (?unsafe=1 accepts that)"
            )
        notes.append(f"unsafe: {name} is {row[name]}: {loss}")
    if notes:
        durability = "unsafe: acknowledged commits may be lost"
    elif row["standbys"]:
        durability = f"each commit is flushed to disk here and on standbys ({row['standbys']})"
    else:
        durability = "each commit is flushed to disk on this server; standbys, if any, may lag"
    return f"PostgreSQL {row['version']}", durability, tuple(notes)
