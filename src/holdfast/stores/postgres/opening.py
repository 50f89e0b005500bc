"""Opening: from a URL to a server that was checked, with a schema that is up to date and a feed that begins at its head."""

import asyncpg

from holdfast.contracts.store import StoreFacts
from holdfast.stores.feed import Feed
from holdfast.stores.guard import Guard
from holdfast.stores.postgres.connections import BROKEN, dial, in_words
from holdfast.stores.postgres.durability import check_durability
from holdfast.stores.postgres.schema import bring_up_to_date
from holdfast.stores.postgres.server import Server
from holdfast.stores.postgres.settings import PostgresSettings
from holdfast.vocabulary.clock import Chance, Clock
from holdfast.vocabulary.errors import CorruptError, InvalidError, UnavailableError

_REFUSED = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidPasswordError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.ClientConfigurationError,
)


async def open_server(
    url: str, settings: PostgresSettings, *, service: str, clock: Clock, chance: Chance
) -> tuple[Server, Feed, StoreFacts]:
    """Check and prepare everything on one connection, then close it."""
    try:
        connection = await dial(url, settings)
        try:
            name, durability, notes = await check_durability(connection, service, unsafe=settings.unsafe)
            notes += await bring_up_to_date(connection, settings, service=service, incarnation=chance.token())
            row = await connection.fetchrow(settings.sql("SELECT version, incarnation FROM {schema}.head"))
        finally:
            connection.terminate()
    except _REFUSED as error:
        raise InvalidError(f"store URL {service}", in_words(error), "a database and a user that may use it") from error
    except BROKEN as error:
        raise UnavailableError(
            service, f"{in_words(error)}. Check host and port, and that PostgreSQL runs there and takes connections"
        ) from error
    if row is None:
        raise CorruptError(service, f"table head of schema {settings.schema} is empty")
    feed = Feed(head=row["version"])
    guard = Guard(service, incarnation=row["incarnation"], version=row["version"], on_fault=feed.end)
    server = Server(url, settings, service=service, guard=guard, clock=clock, chance=chance)
    facts = StoreFacts(
        engine="postgresql", server=name, durability=durability, incarnation=row["incarnation"], notes=notes
    )
    return server, feed, facts
