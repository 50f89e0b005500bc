"""Founding: the first look at a server, and the namespace made in it unless it is there.

The one rule: only an opening founds. A namespace that vanishes under an open store is never made again by it.
"""

from redis.exceptions import ResponseError

from holdfast.contracts.store import StoreFacts
from holdfast.stores.redis.connection import (
    AccessDeniedError,
    RedisAnswerLostError,
    RedisConnection,
    RequestNotSentError,
)
from holdfast.stores.redis.durability import check_durability
from holdfast.stores.redis.error_replies import ADVICE, code_of
from holdfast.stores.redis.key_layout import FORMAT, FOUND, LOAD_SCRIPTS, PRUNE, SCRIPTS, KeyLayout
from holdfast.stores.redis.settings import RedisAddress, RedisSettings
from holdfast.vocabulary.errors import CorruptError, InvalidError, UnavailableError
from holdfast.vocabulary.random import Random


async def found(address: RedisAddress, settings: RedisSettings, random: Random) -> tuple[StoreFacts, int]:
    """What the server says of itself and of the namespace, and the version the namespace is at."""
    link = RedisConnection(address, timeout_ms=settings.timeout_ms)
    try:
        examined = await check_durability(link, address, unsafe=settings.unsafe)
        layout = KeyLayout(settings.namespace)
        founding = FOUND.call(layout.all, random.token(), FORMAT)
        prune = PRUNE.call((layout.meta,), settings.outcomes_kept_s)
        *loaded, reply, _ = await link.ask(LOAD_SCRIPTS + founding + prune, len(SCRIPTS) + 2)
    except AccessDeniedError as error:
        raise InvalidError(f"login of {address.shown}", address.username or "default", str(error)) from None
    except (RequestNotSentError, RedisAnswerLostError) as error:
        reason = f"{error}; see that the server runs and that the URL is right"
        raise UnavailableError(address.shown, reason) from None
    finally:
        await link.close()
    for each in (*loaded, reply):
        if isinstance(each, ResponseError):
            advice = ADVICE.get(code_of(each), "it refused the scripts")
            raise UnavailableError(address.shown, f"{advice} ({each})")
    if reply[0] == b"leftover":
        what = f"namespace {settings.namespace} of {address.shown}"
        raise CorruptError(
            what, f"key {reply[1].decode()} of type {reply[2].decode()} is not Holdfast's, or the rest is gone"
        )
    incarnation, head, form = (each.decode() for each in reply)
    if form != FORMAT:
        raise InvalidError(
            f"format of namespace {settings.namespace}", form, f"{FORMAT}: use the release that wrote it"
        )
    facts = StoreFacts(
        engine="redis",
        server=examined.server,
        durability=examined.durability,
        incarnation=incarnation,
        notes=(*examined.faults, *examined.notes),
    )
    return facts, int(head)
