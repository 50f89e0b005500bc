"""Opening a namespace: the checks of the server, and the namespace, created unless it exists.

The one rule: only opening creates. A namespace that vanishes under an open store is never created again by it.
"""

from redis.exceptions import ResponseError

from holdfast.contracts.store import StoreFacts
from holdfast.stores.errors import AnswerLostError
from holdfast.stores.redis.connection import (
    AccessDeniedError,
    RedisConnection,
    RequestNotSentError,
)
from holdfast.stores.redis.durability import check_durability
from holdfast.stores.redis.error_replies import ADVICE, code_of
from holdfast.stores.redis.key_layout import CREATE, FORMAT, LOAD_SCRIPTS, PRUNE, SCRIPTS, KeyLayout
from holdfast.stores.redis.settings import RedisAddress, RedisSettings
from holdfast.vocabulary.errors import CorruptError, InvalidError, UnavailableError, UsageError
from holdfast.vocabulary.random import Random


async def open_namespace(address: RedisAddress, settings: RedisSettings, random: Random) -> tuple[StoreFacts, int]:
    """The facts of server and namespace, and the namespace's version."""
    connection = RedisConnection(address, timeout_ms=settings.timeout_ms)
    try:
        examined = await check_durability(connection, address, unsafe=settings.unsafe)
        layout = KeyLayout(settings.namespace)
        create = CREATE.call(layout.all, random.token(), FORMAT)
        prune = PRUNE.call((layout.meta,), settings.outcomes_kept_s)
        *loaded, reply, _ = await connection.execute(LOAD_SCRIPTS + create + prune, len(SCRIPTS) + 2)
    except AccessDeniedError as error:
        raise UsageError(f"{error}; check user, password and TLS in the store URL") from None
    except (RequestNotSentError, AnswerLostError) as error:
        reason = f"{error}; check that the server is running and the URL is right"
        raise UnavailableError(address.shown, reason) from None
    finally:
        await connection.close()
    for each in (*loaded, reply):
        if isinstance(each, ResponseError):
            advice = ADVICE.get(code_of(each), "scripts refused")
            raise UnavailableError(address.shown, f"{advice} ({each})")
    if reply[0] == b"leftover":
        what = f"namespace {settings.namespace} of {address.shown}"
        raise CorruptError(
            what,
            f"unexpected key {reply[1].decode()} of type {reply[2].decode()}: not Holdfast's, or other keys were deleted",
        )
    incarnation, head, form = (each.decode() for each in reply)
    if form != FORMAT:
        raise InvalidError(
            f"format of namespace {settings.namespace}", form, f"{FORMAT}; open it with the release that wrote it"
        )
    facts = StoreFacts(
        engine="redis",
        server=examined.server,
        durability=examined.durability,
        incarnation=incarnation,
        notes=(*examined.faults, *examined.notes),
    )
    return facts, int(head)
