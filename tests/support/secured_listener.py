"""Servers whose clients log in: every mechanism, with and without TLS, and certificates."""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.broker import Broker, serving
from tests.support.certificates import certificate
from tests.support.oauth import AUDIENCE, CLIENT_SECRET, ISSUER, Issuer

from holdfast.security import acls, scram
from holdfast.security.principals import Principal
from holdfast.security.store import SecurityStore
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

ORG = "org.apache.kafka.common.security.oauthbearer"
USER, PASSWORD, TIMEOUT_S = "ann", "s3cret", 30
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTH = "OAUTHBEARER"
MECHANISMS = (*PASSWORDS, OAUTH)
LOGINS = [
    *(("SASL_PLAINTEXT", each) for each in MECHANISMS),
    *(("SASL_SSL", each) for each in MECHANISMS),
    ("SSL", ""),
]


@dataclass(frozen=True)
class Listener:
    """A server with logins. `server` and `client`: a certificate and its key each. `issuer`: of OAuth tokens."""

    protocol: str
    broker: Broker
    server: tuple[Path, Path]
    client: tuple[Path, Path]
    issuer: Issuer

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def context(self) -> ssl.SSLContext | None:
        """For Python's clients."""
        if not self.protocol.endswith("SSL"):
            return None
        context = ssl.create_default_context(cafile=str(self.server[0]))
        if self.protocol == "SSL":
            context.load_cert_chain(*self.client)
        return context

    def token(self, _: str = "") -> tuple[str, float]:
        """For librdkafka: a token and when it expires."""
        return self.issuer.token(USER), RealClock().now_ms() / 1_000 + self.issuer.lifetime_s

    def librdkafka(self, mechanism: str, user: str = USER, password: str = PASSWORD) -> dict[str, Any]:
        settings = {"bootstrap.servers": self.bootstrap, "security.protocol": self.protocol, "log_level": 0}
        if mechanism == OAUTH:
            settings |= {"sasl.mechanism": mechanism, "oauth_cb": self.token}
        elif mechanism:
            settings |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
        if self.protocol.endswith("SSL"):
            settings |= {"ssl.ca.location": str(self.server[0])}
        if self.protocol == "SSL":
            settings |= {"ssl.certificate.location": str(self.client[0]), "ssl.key.location": str(self.client[1])}
        return settings

    def java(self, mechanism: str, handlers: str = "") -> str:
        """A file of properties. `handlers`: where that of OAuth is, which has moved with Kafka 4."""
        lines = [f"security.protocol={self.protocol}"]
        if mechanism == OAUTH:
            login = f'{ORG}.OAuthBearerLoginModule required clientId="{USER}" clientSecret="{CLIENT_SECRET}";'
            lines += [f"sasl.mechanism={OAUTH}", f"sasl.jaas.config={login}"]
            lines += [f"sasl.login.callback.handler.class={ORG}.{handlers}OAuthBearerLoginCallbackHandler"]
            lines += [f"sasl.oauthbearer.token.endpoint.url={self.issuer.url}/token"]
        elif mechanism:
            module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
            login = f'org.apache.kafka.common.security.{module} required username="{USER}" password="{PASSWORD}";'
            lines += [f"sasl.mechanism={mechanism}", f"sasl.jaas.config={login}"]
        if self.protocol.endswith("SSL"):
            lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={self.server[0]}"]
        if self.protocol == "SSL":
            pair = self.client[0].with_name("pair.pem")
            pair.write_text(self.client[1].read_text() + self.client[0].read_text())
            lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={pair}"]
        return "\n".join(lines) + "\n"


async def prepare(data: Path) -> None:
    """The user, and what the user may do, whether known by name or by certificate."""
    clock, random = RealClock(), SystemRandom()
    async with open_store(f"sqlite:///{data / 'store.db'}", clock=clock, random=random, create=False) as store:
        security = SecurityStore(store, clock=clock, random=random)
        made = [scram.credential_of(each, PASSWORD, salt=b"salt", iterations=4_096) for each in scram.ScramMechanism]
        for name in (USER, "admin"):
            await security.set_credentials(name, made)
        prefixed = acls.PatternType.PREFIXED
        await security.create_acls(
            acls.Acl(acls.ResourcePattern(kind, prefix, prefixed), who, acls.Operation.ALL)
            for who in (Principal(USER), Principal(f"CN={USER}"))
            for kind, prefix in ((acls.ResourceType.TOPIC, "mine-"), (acls.ResourceType.GROUP, "mine-"))
        )


@contextmanager
def starting_listeners(folder: Callable[[str], Path]) -> Iterator[Callable[..., Listener]]:
    """Starts the server of a protocol when it is first asked for."""
    with ExitStack() as started:
        issuer = started.enter_context(Issuer().serving())

        @cache
        def start(protocol: str, session_ms: int = 0) -> Listener:
            at = folder(protocol)
            server, client = certificate(at, "node"), certificate(at, USER)
            options = ["--super-users", "User:admin"]
            if protocol.startswith("SASL"):
                options += ["--sasl", ",".join(MECHANISMS), "--set", f"kafka.sasl_session_ms={session_ms}"]
                options += [
                    "--oauth-jwks",
                    f"{issuer.url}/keys",
                    "--oauth-issuer",
                    ISSUER,
                    "--oauth-audience",
                    AUDIENCE,
                ]
            if protocol.endswith("SSL"):
                options += ["--kafka-tls-cert", str(server[0]), "--kafka-tls-key", str(server[1])]
            if protocol == "SSL":
                options += ["--kafka-client-ca", str(client[0])]
            broker = started.enter_context(serving(at, *options))
            asyncio.run(prepare(at / "data"))
            return Listener(protocol, broker, server, client, issuer)

        yield start
