"""How the client of a connection proves who it is: SASL (PLAIN, SCRAM, OAUTHBEARER), or its certificate.

The one rule: until a client has logged in, its connection answers ApiVersions, SaslHandshake and SaslAuthenticate, nothing else. A
login that fails ends the connection. It also ends when the session is over and the client has not logged in again (KIP-368), and
when the user's credential is changed or deleted: no later than the request after this node has seen that.

PLAIN is checked by the authenticator of all gateways, against the credentials of SCRAM; a password that is an API key is checked as
one, whatever the user's name (`token` by custom). Other nodes log in as `NODE_USER`, with what the cluster's secret gives them, and
with `NODE_MECHANISM` wherever there is SASL: unless it is one of the listener's mechanisms, it is not listed, and theirs alone. The
session of an OAuth token ends with the token: a client logs in again with the next one, on the same connection.
"""

import hmac
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.agent.access_control import AccessControl
from holdfast.gateways.kafka.settings import PLAIN, KafkaSettings
from holdfast.kafka.error_codes import ErrorCode
from holdfast.security.acls import canonical_host
from holdfast.security.audit import AuditEvent, AuditLog, AuditOutcome
from holdfast.security.authenticator import Authenticator
from holdfast.security.cluster_secret import NODE, NODE_USER, ClusterSecret
from holdfast.security.identity import AuthenticationError, Identity, TooManyAttemptsError
from holdfast.security.oauthbearer import OAUTHBEARER, TokenError, TokenVerifier, read_bearer_message
from holdfast.security.principals import Principal, PrincipalMapping, distinguished_name
from holdfast.security.scram import (
    ITERATIONS_MIN,
    ScramChallenge,
    ScramCredential,
    ScramError,
    ScramMechanism,
    WrongProofError,
    challenge,
    credential_of,
    decoy,
    read_client_first,
)
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)

NODE_MECHANISM: Final = ScramMechanism.SHA_512
_SALT_BYTES: Final = 16
_FAILED_TEXT: Final = "Authentication failed: invalid credentials with SASL mechanism {}"


@dataclass(frozen=True, slots=True)
class SaslAnswer:
    """What a SaslAuthenticate request gets. `lifetime_ms`: after which the client has to log in again; 0: never."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    data: bytes = b""
    lifetime_ms: int = 0


class MechanismOffError(Exception):
    """A user logs in with the mechanism of nodes, which is not one of the listener's."""

    def __init__(self, mechanism: str, listed: Sequence[str]) -> None:
        super().__init__(f"SASL mechanism {mechanism} is not enabled: use {', '.join(listed)}")


class ListenerSecurity:
    """How clients of a listener log in; what the logins of all its connections share."""

    def __init__(
        self,
        control: AccessControl,
        settings: KafkaSettings,
        *,
        authenticator: Authenticator,
        secret: ClusterSecret,
        audit: AuditLog,
        clock: Clock,
        random: Random,
        tokens: TokenVerifier | None = None,
    ) -> None:
        self.control, self.settings, self.clock, self.random = control, settings, clock, random
        self.authenticator, self.audit, self.secret = authenticator, audit, secret
        self.tokens = tokens  # None: no OAUTHBEARER
        self.mechanisms = settings.sasl_mechanisms
        self.failed_logins = 0
        self._node_credentials: dict[ScramMechanism, ScramCredential] = {}
        self._mapping = PrincipalMapping("kafka.principal_rules", settings.principal_rules)

    def node_credential(self, mechanism: ScramMechanism) -> ScramCredential:
        """What another node logs in with."""
        if mechanism not in self._node_credentials:
            self._node_credentials[mechanism] = credential_of(
                mechanism,
                self.secret.node_password,
                salt=self.control.decoy_secret[:_SALT_BYTES],
                iterations=ITERATIONS_MIN,
            )
        return self._node_credentials[mechanism]

    def is_node_password(self, password: str) -> bool:
        """Whether another node has sent it."""
        return hmac.compare_digest(password.encode(errors="replace"), self.secret.node_password.encode())

    def login(self, host: str, certificate: dict[str, Any] | None) -> "Login":
        """The login of a new connection."""
        host = canonical_host(host)
        if self.mechanisms:
            return Login(self, host)
        name = distinguished_name((certificate or {}).get("subject", ()))
        principal = self._mapping.mapped(name) if name else None
        if principal is None:
            _log.info("connection from %s refused: no principal for certificate %r", host, name)
        return Login(self, host, principal=principal, refused=principal is None)


@dataclass(slots=True)
class _Exchange:
    """A login under way: the mechanism, and with SCRAM the challenge that was sent."""

    mechanism: str
    challenge: ScramChallenge | None = None


@dataclass(slots=True)
class Login:
    """Who the client of a connection is. `refused`: it failed to prove it, and its connection is to be closed."""

    security: ListenerSecurity
    host: str
    principal: Principal | None = None
    refused: bool = False
    started_at_ms: int = field(init=False)
    _exchange: _Exchange | None = field(default=None, init=False)
    _mechanism: str = field(default="", init=False)  # of the last login that succeeded
    identity: Identity | None = field(default=None, init=False)  # None: of a certificate
    _expires_at_ms: int = field(default=0, init=False)  # 0: never
    _checked_at: int = field(default=-1, init=False)  # the version at which the identity was valid

    def __post_init__(self) -> None:
        self.started_at_ms = self.security.clock.boot_ms()

    @property
    def has_ended(self) -> bool:
        """Whether what the client has logged in with is no longer good. A session that is over ends with the next request."""
        return self.identity is not None and not self._is_identity_valid(self.identity)

    @property
    def left_ms(self) -> float:
        """Until the session is over."""
        left_ms = self._expires_at_ms - self.security.clock.boot_ms() if self._expires_at_ms else math.inf
        return max(0.0, left_ms)

    def refusal(self) -> str | None:
        """Why a request that needs a login is not answered; None: the client is logged in."""
        if self.principal is None:
            return "not authenticated"
        if self._expires_at_ms and self.security.clock.boot_ms() >= self._expires_at_ms:
            return f"the session of {self.principal} has expired"
        if self.has_ended:
            return f"the credentials of {self.principal} have changed or expired"
        return None

    def _is_identity_valid(self, identity: Identity) -> bool:
        version = self.security.control.version
        if identity.ends_at_ms or self._checked_at != version:
            if not self.security.authenticator.is_valid(identity):
                return False
            self._checked_at = version
        return True

    def handshake(self, mechanism: str) -> ErrorCode:
        """Begin a login, the first one or the next."""
        if mechanism not in (*self.security.mechanisms, NODE_MECHANISM):
            self.refused = True
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        if self._mechanism not in ("", mechanism):
            self.refused = True
            return ErrorCode.ILLEGAL_SASL_STATE
        self._exchange = _Exchange(mechanism)
        return ErrorCode.NONE

    async def authenticate(self, data: bytes) -> SaslAnswer:
        """The next message of the login."""
        exchange = self._exchange
        if exchange is None:
            self.refused = True
            return SaslAnswer(ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate without SaslHandshake")
        try:
            if exchange.mechanism == PLAIN:
                return await self._plain(data)
            if exchange.mechanism == OAUTHBEARER:
                return await self._bearer(data)
            if exchange.challenge is None:
                return self._challenged(exchange, data)
            verified = self._verified(exchange.challenge, data)
            return self._logged_in(self._scram_identity(exchange.challenge), verified)
        except TooManyAttemptsError as error:
            return await self._failed(exchange.mechanism, str(error))
        except MechanismOffError as error:
            return await self._failed(exchange.mechanism, str(error), told=f"Authentication failed: {error}")
        except ScramError as error:
            return await self._failed(exchange.mechanism, str(error))
        except TokenError as error:
            return await self._failed(OAUTHBEARER, str(error), told=f"Authentication failed: {error}")

    def _challenged(self, exchange: _Exchange, data: bytes) -> SaslAnswer:
        security = self.security
        mechanism, first = ScramMechanism(exchange.mechanism), read_client_first(data)
        if mechanism not in security.mechanisms and first.user != NODE_USER:
            raise MechanismOffError(mechanism, security.mechanisms)
        user = security.control.user(first.user)
        credential = user.credential(mechanism) if user is not None else None
        if first.user == NODE_USER:
            credential = security.node_credential(mechanism)
        if credential is None:
            credential = decoy(mechanism, first.user, security.control.decoy_secret)
        nonce = security.random.token() + security.random.token()
        exchange.challenge = challenge(credential, first, nonce=nonce)
        return SaslAnswer(data=exchange.challenge.message)

    def _verified(self, asked: ScramChallenge, data: bytes) -> bytes:
        """The last message of SCRAM, to who has the password. `ScramError`, `TooManyAttemptsError`."""
        name, authenticator = asked.client.user, self.security.authenticator
        if name == NODE_USER:
            return asked.verify(data)  # nobody guesses that one, and nobody may lock out nodes
        authenticator.begin_at_once(self.host, name)
        succeeded: bool | None = None  # a malformed message tries no password
        try:
            verified = asked.verify(data)
            succeeded = True
        except WrongProofError:
            succeeded = False
            raise
        finally:
            authenticator.attempt_ended(self.host, name, succeeded=succeeded)
        return verified

    async def _plain(self, data: bytes) -> SaslAnswer:
        security = self.security
        try:
            acting_as, name, password = data.decode().split("\0")
        except ValueError:
            return await self._failed(PLAIN, "malformed PLAIN message")
        if acting_as not in ("", name):
            return await self._failed(PLAIN, f"{name[:80]!r} may not act for another user")
        if name == NODE_USER and security.is_node_password(password):
            return self._logged_in(Identity(principal=NODE, host=self.host, method=PLAIN), b"")
        try:
            identity = await security.authenticator.password(name, password, self.host)
        except (AuthenticationError, TooManyAttemptsError, UnavailableError) as error:
            return await self._failed(PLAIN, getattr(error, "reason", str(error)))
        return self._logged_in(identity, b"")

    def _scram_identity(self, proven: ScramChallenge) -> Identity:
        name = proven.client.user
        if name == NODE_USER:
            return Identity(principal=NODE, host=self.host, method=proven.credential.mechanism)
        return Identity(
            principal=Principal(name),
            host=self.host,
            method=proven.credential.mechanism,
            credential=proven.credential,
        )

    async def _bearer(self, data: bytes) -> SaslAnswer:
        security = self.security
        if security.tokens is None:
            raise TokenError("this listener has no keys to check tokens with")
        message = read_bearer_message(data)
        found = await security.tokens.verify(message.token)
        if message.authzid not in ("", found.name):
            raise TokenError("acting for another user is not supported")
        left_ms = max(1, found.expires_at_ms - security.clock.now_ms())
        identity = Identity(principal=Principal(found.name), host=self.host, method=OAUTHBEARER)
        return self._logged_in(identity, b"", lifetime_max_ms=left_ms)

    def _logged_in(self, identity: Identity, data: bytes, *, lifetime_max_ms: int = 0) -> SaslAnswer:
        """`lifetime_max_ms`: when what was proved ends; 0: never."""
        assert self._exchange is not None
        security, principal = self.security, identity.principal
        scopes = self.identity.operations if self.identity is not None else identity.operations
        if self.principal not in (None, principal) or scopes != identity.operations:
            self.refused = True
            return SaslAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, "the principal of a connection cannot be changed")
        lifetime_ms = min(filter(None, (security.settings.sasl_session_ms, lifetime_max_ms)), default=0)
        self.principal, self.identity, self._mechanism = principal, identity, self._exchange.mechanism
        self._expires_at_ms = security.clock.boot_ms() + lifetime_ms if lifetime_ms else 0
        self._checked_at, self._exchange = -1, None
        return SaslAnswer(data=data, lifetime_ms=lifetime_ms)

    async def _failed(self, mechanism: str, reason: str, told: str = "") -> SaslAnswer:
        """Refuse, after a pause: whoever tries passwords waits for each. `told`: to the client, where the reason is no secret."""
        security = self.security
        self.refused, self._exchange = True, None
        security.failed_logins += 1
        _log.info("login from %s failed: %s: %s", self.host, mechanism, reason)
        security.audit.record(
            AuditEvent(
                gateway="kafka",
                principal="",
                host=self.host,
                action=f"login {mechanism}",
                outcome=AuditOutcome.REFUSED,
                detail=reason,
            )
        )
        await security.clock.sleep_ms(security.settings.failed_login_delay_ms)
        return SaslAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, told or _FAILED_TEXT.format(mechanism))
