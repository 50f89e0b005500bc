"""Opening a store: from a URL to a checked server, a migrated schema and a feed that starts at its head."""

import ssl

import asyncpg

from holdfast.contracts.store import StoreFacts
from holdfast.stores.change_feed import ChangeFeed
from holdfast.stores.postgres.client import PostgresClient
from holdfast.stores.postgres.connection_pool import CONNECTION_ERRORS, describe_error, dial
from holdfast.stores.postgres.durability import check_durability
from holdfast.stores.postgres.schema import migrate_schema
from holdfast.stores.postgres.settings import PostgresSettings
from holdfast.stores.version_guard import VersionGuard
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, UnavailableError, UsageError
from holdfast.vocabulary.random import Random

_REFUSED = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidPasswordError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.ClientConfigurationError,
)


async def open_client(
    url: str, settings: PostgresSettings, *, service: str, clock: Clock, random: Random
) -> tuple[PostgresClient, ChangeFeed, StoreFacts]:
    """Check and prepare everything on one connection, then close it."""
    try:
        connection = await dial(url, settings)
        try:
            name, durability, notes = await check_durability(connection, service, unsafe=settings.unsafe)
            notes += await migrate_schema(connection, settings, service=service, incarnation=random.token())
            row = await connection.fetchrow(settings.sql("SELECT version, incarnation FROM {schema}.head"))
        finally:
            connection.terminate()
    except ssl.SSLCertVerificationError as error:
        raise UsageError(
            f"cannot open {service}: {error.verify_message}; "
            "its certificate must be of an authority in sslrootcert, and for its host"
        ) from error
    except _REFUSED as error:
        raise UsageError(
            f"cannot open {service}: {describe_error(error)}; check database, user, password and privileges"
        ) from error
    except CONNECTION_ERRORS as error:
        raise UnavailableError(
            service,
            f"{describe_error(error)}; check host and port, and that PostgreSQL is running and accepts connections",
        ) from error
    if row is None:
        raise CorruptError(service, f"table head of schema {settings.schema} is empty")
    feed = ChangeFeed(head=row["version"])
    guard = VersionGuard(service, incarnation=row["incarnation"], version=row["version"], on_fault=feed.end)
    client = PostgresClient(url, settings, service=service, guard=guard, clock=clock, random=random)
    facts = StoreFacts(
        engine="postgresql", server=name, durability=durability, incarnation=row["incarnation"], notes=notes
    )
    return client, feed, facts
