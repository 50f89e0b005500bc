"""The security of a node: users, keys and ACLs, the one authenticator, the audit log, and how nodes log in to each other.

The one rule: it is on for every gateway, or for none. It is on where Kafka's clients have to prove who they are.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.agent.access_control import AccessControl, watching_access_control
from holdfast.app.config import ServeSettings
from holdfast.client.broker_login import BrokerLogin
from holdfast.contracts.store import Store
from holdfast.gateways.http.security import HttpSecurity
from holdfast.gateways.kafka.login import NODE_MECHANISM, ListenerSecurity
from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.gateways.text.security import TextSecurity
from holdfast.security.audit import AuditLog, AuditSettings
from holdfast.security.authenticator import Authenticator
from holdfast.security.bootstrap import BootstrapToken
from holdfast.security.cluster_secret import NODE_USER, ClusterSecret, cluster_secret
from holdfast.security.oauthbearer import OAUTHBEARER, TokenVerifier
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, InvalidError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import background_tasks

_log: Final = logging.getLogger(__name__)

_USES_MS: Final = 30_000
_USE_FORGOTTEN_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSecurity:
    """What the gateways are given. `bootstrap_token`: to be shown, this once."""

    control: AccessControl
    authenticator: Authenticator
    audit: AuditLog
    secret: ClusterSecret
    bootstrap: BootstrapToken
    bootstrap_token: str
    kafka: ListenerSecurity

    @property
    def http(self) -> HttpSecurity:
        """What the HTTP gateway is given."""
        return HttpSecurity(
            authenticator=self.authenticator, control=self.control, audit=self.audit, bootstrap=self.bootstrap
        )

    @property
    def text(self) -> TextSecurity:
        """What the text gateway is given."""
        return TextSecurity(authenticator=self.authenticator, audit=self.audit, secret=self.secret)


@asynccontextmanager
async def node_security(
    settings: ServeSettings, store: Store, *, clock: Clock, random: Random
) -> AsyncIterator[NodeSecurity | None]:
    """Security for the body; None: everybody may do everything."""
    if not settings.kafka.authenticates:
        yield None
        return
    tuning = settings.security
    audit_settings = AuditSettings(
        to=tuning.audit, bytes_max=tuning.audit_bytes_max, refusals_per_s=tuning.audit_refusals_per_s
    )
    secret = await cluster_secret(store, clock=clock, random=random)
    with AuditLog(audit_settings, clock=clock) as audit:
        async with (
            watching_access_control(store, super_users=tuning.principals, clock=clock, random=random) as control,
            _token_verifier(settings, clock=clock, random=random) as tokens,
        ):
            authenticator = Authenticator(control, tuning, session_key=secret.session_key, clock=clock, random=random)
            bootstrap = BootstrapToken(store, clock=clock, random=random)
            kafka = ListenerSecurity(
                control,
                settings.kafka,
                authenticator=authenticator,
                secret=secret,
                audit=audit,
                clock=clock,
                random=random,
                tokens=tokens,
            )
            security = NodeSecurity(
                control=control,
                authenticator=authenticator,
                audit=audit,
                secret=secret,
                bootstrap=bootstrap,
                bootstrap_token=await _offered_token(control, bootstrap, tuning.bootstrap_token_file),
                kafka=kafka,
            )
            try:
                async with background_tasks(_write_uses(security, clock)):
                    yield security
            finally:
                authenticator.close()


@asynccontextmanager
async def _token_verifier(
    settings: ServeSettings, *, clock: Clock, random: Random
) -> AsyncIterator[TokenVerifier | None]:
    """How OAuth tokens are checked; None: nobody logs in with one, and nothing that could check them is imported."""
    if OAUTHBEARER not in settings.kafka.sasl_mechanisms:
        yield None
        return
    from holdfast.security.bearer_tokens import verifying_tokens

    async with verifying_tokens(settings.oauth, clock=clock, random=random) as tokens:
        yield tokens


async def _offered_token(control: AccessControl, bootstrap: BootstrapToken, file: str) -> str:
    """The token to show: one that was made up, where nobody can administer this cluster yet."""
    if control.has_administrator:
        return ""
    if not file:
        return await bootstrap.offer()
    try:
        given = await asyncio.to_thread(Path(file).read_text)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError("bootstrap token file", file, f"a readable file ({error})") from None
    await bootstrap.offer(given)
    return ""


async def _write_uses(security: NodeSecurity, clock: Clock) -> None:
    """Write now and then which keys were used; a key that is used all the time, once a minute."""
    written: dict[str, int] = {}
    while True:
        await clock.sleep_ms(_USES_MS)
        used, security.authenticator.used_at_ms = security.authenticator.used_at_ms, {}
        due = {
            prefix: at_ms
            for prefix, at_ms in used.items()
            if at_ms - written.get(prefix, 0) >= _USE_FORGOTTEN_MS and security.control.key(prefix) is not None
        }
        try:
            await security.control.key_store.record_uses(due)
        except HoldfastError as error:
            _log.warning("last uses of API keys were not written: %s", error)
            continue
        written = {prefix: at_ms for prefix, at_ms in {**written, **due}.items() if security.control.key(prefix)}


def node_login(settings: KafkaSettings, secret: ClusterSecret | None, random: Random) -> BrokerLogin | None:
    """How this node logs in to the Kafka ports of the cluster; None: nobody needs to, and there is no TLS.

    With SASL, a node logs in by SCRAM, whatever the mechanisms of everybody else. With certificates alone, it shows that of its
    listener, and has to be a super user, as a broker in Kafka.
    """
    if not settings.is_secured:
        return None
    mechanism = NODE_MECHANISM if settings.sasl_mechanisms else ""
    shows = bool(settings.client_ca)
    return BrokerLogin(
        random=random,
        mechanism=str(mechanism),
        user=NODE_USER if mechanism else "",
        password=secret.node_password if secret is not None and mechanism else "",
        ca=(settings.tls_ca or settings.client_ca or settings.tls_cert) if settings.tls_cert else "",
        certificate=settings.tls_cert if shows else "",
        key=settings.tls_key if shows else "",
    )
