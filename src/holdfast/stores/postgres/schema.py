"""Schema: the tables and functions of a store, migrated at open, and its SQL views.

Migrations are numbered files, applied in order under a lock, each at most once per database. A store with a newer schema is
refused. Views are no migration: their one file is applied whenever its text has changed; a failure is only a note.
"""

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Final

import asyncpg

from holdfast.stores.postgres.connection_pool import describe_error
from holdfast.stores.postgres.settings import PostgresSettings
from holdfast.vocabulary.errors import CorruptError, InvalidError

if TYPE_CHECKING:
    from holdfast.stores.postgres.connection_pool import Connection, Row

# Not to_regclass: it may have cached, before the lock was taken, that there was no such table.
_HAS_META: Final = """
SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = 'meta'"""
_META: Final = "SELECT schema_version, views_digest FROM {schema}.meta"
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext('{channel}'), 1)"
_RECORD: Final = """
INSERT INTO {schema}.meta (schema_version) VALUES ($1)
ON CONFLICT (only_row) DO UPDATE SET schema_version = excluded.schema_version"""


@cache
def migrations() -> tuple[str, ...]:
    """The text of each migration; the first is number 1."""
    folder = files(__package__) / "migrations"
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple(file.read_text() for file in found)


@cache
def views() -> str:
    """The text of the views."""
    return (files(__package__) / "views.sql").read_text()


async def migrate_schema(
    connection: "Connection", settings: PostgresSettings, *, service: str, incarnation: str
) -> tuple[str, ...]:
    """Create or migrate the store. `incarnation` is for a new one. Returns notes."""
    wanted = len(migrations())
    meta = await _meta(connection, settings, service)
    if meta is None or meta["schema_version"] < wanted:
        async with connection.transaction():
            await _lock(connection, settings)
            meta = await _meta(connection, settings, service)  # again: another process may have been first
            if meta is None:
                await _create_schema(connection, settings)
            for number in range(meta["schema_version"] + 1 if meta is not None else 1, wanted + 1):
                text = migrations()[number - 1].replace("{incarnation}", incarnation)
                await connection.execute(settings.sql(text))
                await connection.execute(settings.sql(_RECORD), number)
    elif meta["schema_version"] > wanted:
        raise InvalidError(
            f"schema version of {service}",
            meta["schema_version"],
            f"at most {wanted}: a newer Holdfast wrote it, so upgrade",
        )
    return await _update_views(connection, settings, service)


async def _update_views(connection: "Connection", settings: PostgresSettings, service: str) -> tuple[str, ...]:
    digest = sha256(views().encode()).hexdigest()
    meta = await _meta(connection, settings, service)
    if meta is not None and meta["views_digest"] == digest:
        return ()
    try:
        async with connection.transaction():
            await _lock(connection, settings)
            await connection.execute("SET LOCAL lock_timeout = '2s'")  # a long-running report must not block opening
            await connection.execute(settings.sql(views()))
            await connection.execute(settings.sql("UPDATE {schema}.meta SET views_digest = $1"), digest)
    except asyncpg.PostgresError as error:
        return (f"SQL views are not up to date ({describe_error(error)})",)
    return ()


async def _lock(connection: "Connection", settings: PostgresSettings) -> None:
    await connection.execute("SET LOCAL statement_timeout = '60s'")
    await connection.execute(settings.sql(_LOCK))


async def _create_schema(connection: "Connection", settings: PostgresSettings) -> None:
    # Looked up first: IF NOT EXISTS needs the CREATE privilege even if an administrator has created the schema.
    if not await connection.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", settings.schema):
        await connection.execute(settings.sql("CREATE SCHEMA {schema}"))


async def _meta(connection: "Connection", settings: PostgresSettings, service: str) -> "Row | None":
    """The row of table meta; None if there is no store yet."""
    if not await connection.fetchval(_HAS_META, settings.schema):
        return None
    row = await connection.fetchrow(settings.sql(_META))
    if row is None:
        raise CorruptError(service, f"table meta of schema {settings.schema} is empty")
    return row
