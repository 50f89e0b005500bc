"""The one authenticator of every gateway: credentials in, an `Identity` out, or an error that says what the caller can do.

The rules: what was proven once is believed for `cache_ms`, and only while the very credential is still stored: a key that was
revoked, or a password that was changed, counts for nothing as soon as this node has seen it. What is remembered of a secret is a
digest under a key that this process alone has. Secrets are compared in constant time, by Argon2, PBKDF2 with `compare_digest`, or
the signature of a token. Wrong passwords are limited by user and by address, also those that are tried at once, and each takes
the same work, whether there is such a user or not.

A gateway calls `api_key`, `password` or `session`, then `allows` or `require` for what its table of rules names, and `is_valid`
again and again for what lasts: streams, long polls, connections.
"""

import hashlib
from collections import OrderedDict
from dataclasses import replace
from typing import Final, Protocol

from holdfast.security.acls import Operation, ResourceType, canonical_host
from holdfast.security.api_keys import MARK, ApiKey, is_secret, operations_of, prefix_of
from holdfast.security.attempt_limits import AttemptLimits
from holdfast.security.authorizer import Authorizer
from holdfast.security.identity import AuthenticationError, ForbiddenError, Identity, TooManyAttemptsError
from holdfast.security.principals import Principal
from holdfast.security.scram import ScramMechanism, decoy, is_password, spend_refusal
from holdfast.security.secret_checks import SecretChecks
from holdfast.security.sessions import LoginSession, decode_session, encode_session
from holdfast.security.settings import SecuritySettings
from holdfast.security.store import User
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import Notify

API_KEY: Final = "api-key"
PASSWORD: Final = "password"  # noqa: S105 (the name of a method)
SESSION: Final = "session"
_CACHE_MAX: Final = 10_000
_DECISIONS_MAX: Final = 20_000
_NAME_CHARS_MAX: Final = 300  # of a decision that is kept: no resource that exists has a longer name
_SECRET_CHARS_MAX: Final = 4_096
_UNDER_WAY_RETRY_MS: Final = 1_000


class Directory(Protocol):
    """Users, keys and ACLs as this node sees them. `version` grows with every change of any."""

    @property
    def version(self) -> int: ...
    @property
    def authorizer(self) -> Authorizer: ...
    def user(self, name: str) -> User | None: ...
    def key(self, prefix: str) -> ApiKey | None: ...


class Authenticator:
    """Who callers are, and what they may do, on one node."""

    def __init__(
        self, directory: Directory, settings: SecuritySettings, *, session_key: str, clock: Clock, random: Random
    ) -> None:
        self.directory, self.settings = directory, settings
        self.checks = SecretChecks()
        self.users_limits = AttemptLimits(settings.user_attempts)
        self.hosts_limits = AttemptLimits(settings.address_attempts)
        self._attempt_ended = Notify()
        self.used_at_ms: dict[str, int] = {}
        """Keys that were used, and when; whoever writes that down empties it."""
        self._session_key, self.clock, self.random = session_key, clock, random
        self._digest_key = bytes.fromhex(random.token() + random.token())
        self._decoy_secret = bytes.fromhex(random.token() + random.token())
        self._verified: OrderedDict[bytes, tuple[Identity, int]] = OrderedDict()
        self._decisions: dict[tuple[Identity, Operation, ResourceType, str], bool] = {}
        self._decided_at = -1

    # ── who ──

    async def api_key(self, secret: str, host: str) -> Identity:
        """The identity of a key. `AuthenticationError`, `UnavailableError`."""
        digest = self._digest(API_KEY, secret, host)
        known = self._known(digest)
        if known is not None:
            return known
        host = canonical_host(host)
        prefix = prefix_of(secret)
        key = self.directory.key(prefix) if prefix is not None else None
        # Nobody guesses 160 bits, so failures lock nothing: whoever tries keys must not lock out who shares the address.
        if key is None:
            raise AuthenticationError(f"unknown key {(prefix or '')!r}")
        if key.is_expired(self.clock.now_ms()):
            raise AuthenticationError(f"key {key.prefix} has expired")
        if not await self.checks.run(f"{host} {key.prefix}", digest, lambda: is_secret(key.hash, secret)):
            raise AuthenticationError(f"wrong secret for key {key.prefix}")
        identity = Identity(
            principal=key.principal,
            host=host,
            method=API_KEY,
            credential=key,
            operations=operations_of(key.scopes),
            ends_at_ms=key.expires_at_ms,
        )
        return self._remember(digest, identity)

    async def password(self, name: str, password: str, host: str) -> Identity:
        """The identity of a user; a password that is an API key is checked as one.

        `AuthenticationError`, `TooManyAttemptsError`, `UnavailableError`.
        """
        if password.startswith(MARK):
            return await self.api_key(password, host)
        digest = self._digest(PASSWORD, f"{len(name)}:{name}:{password}", host)
        known = self._known(digest)
        if known is not None:
            return known
        host = canonical_host(host)
        self.refuse_locked(host, name)
        user = self.directory.user(name)
        found = user.credentials[0] if user is not None else decoy(ScramMechanism.SHA_256, name, self._decoy_secret)

        def check() -> bool:
            if is_password(found, password):
                return True
            spend_refusal(found, password)
            return False

        if len(password) > _SECRET_CHARS_MAX or not await self.checks.run(
            host,
            digest,
            check,
            admitted=lambda: self._begin(host, name),
            settled=lambda succeeded: self.attempt_ended(host, name, succeeded=succeeded),
        ):
            raise AuthenticationError(f"wrong user or password for {name[:80]!r}")
        return self._remember(digest, Identity(principal=Principal(name), host=host, method=PASSWORD, credential=found))

    def open_session(self, identity: Identity) -> tuple[str, Identity]:
        """A token for a browser of somebody who has given the password, and the identity that it gives."""
        user = self.directory.user(identity.principal.name)
        if user is None or identity.method != PASSWORD:
            raise AuthenticationError("only a user with a password can open a session")
        session = LoginSession(
            user=user.name,
            version=user.version,
            csrf=self.random.token() + self.random.token(),
            ends_at_ms=self.clock.now_ms() + self.settings.session_ms,
        )
        return encode_session(session, self._session_key), self._session_identity(session, user, identity.host)

    def session(self, token: str, host: str) -> Identity:
        """The identity of a session. `AuthenticationError`."""
        digest = self._digest(SESSION, token, host)
        known = self._known(digest)
        if known is not None:
            return known
        session = decode_session(token, self._session_key, now_ms=self.clock.now_ms())
        user = self.directory.user(session.user)
        if user is None or user.version != session.version:
            raise AuthenticationError(f"the credentials of {session.user} have changed")
        return self._remember(digest, self._session_identity(session, user, canonical_host(host)))

    def is_valid(self, identity: Identity) -> bool:
        """Whether what it was proven with is still good."""
        if identity.ends_at_ms and self.clock.now_ms() >= identity.ends_at_ms:
            return False
        credential = identity.credential
        if isinstance(credential, ApiKey):
            return self.directory.key(credential.prefix) == credential
        if credential is None:
            return True
        user = self.directory.user(identity.principal.name)
        if isinstance(credential, User):
            return user is not None and user.version == credential.version
        return user is not None and credential in user.credentials

    # ── what they may do ──

    def allows(self, identity: Identity, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the identity may do this. Decisions are kept until anything changes."""
        if self._decided_at != self.directory.version or len(self._decisions) > _DECISIONS_MAX:
            self._decisions.clear()
            self._decided_at = self.directory.version
        asked = (identity, operation, kind, name)
        decided = self._decisions.get(asked)
        if decided is None:
            decided = (
                identity.operations is None or operation in identity.operations
            ) and self.directory.authorizer.authorize(identity.principal, identity.host, operation, kind, name)
            if len(name) <= _NAME_CHARS_MAX:
                self._decisions[asked] = decided
        return decided

    def require(self, identity: Identity, operation: Operation, kind: ResourceType, name: str) -> None:
        """Raise `ForbiddenError` unless the identity may do this."""
        if not self.allows(identity, operation, kind, name):
            raise ForbiddenError(identity.principal, operation, kind, name)

    # ── what is remembered ──

    def _digest(self, method: str, secret: str, host: str) -> bytes:
        return hashlib.blake2b(
            f"{method}\0{host}\0{secret}".encode(errors="surrogatepass"), key=self._digest_key, digest_size=16
        ).digest()

    def _known(self, digest: bytes) -> Identity | None:
        found = self._verified.get(digest)
        if found is None:
            return None
        identity, verified_at_ms = found
        now_ms = self.clock.boot_ms()
        if now_ms - verified_at_ms >= self.settings.cache_ms or not self.is_valid(identity):
            del self._verified[digest]
            return None
        if isinstance(identity.credential, ApiKey):
            self.used_at_ms[identity.credential.prefix] = self.clock.now_ms()
        return identity

    def _remember(self, digest: bytes, identity: Identity) -> Identity:
        self._verified[digest] = (identity, self.clock.boot_ms())
        if len(self._verified) > _CACHE_MAX:
            self._verified.popitem(last=False)
        if isinstance(identity.credential, ApiKey):
            self.used_at_ms[identity.credential.prefix] = self.clock.now_ms()
        return identity

    def _session_identity(self, session: LoginSession, user: User, host: str) -> Identity:
        return Identity(
            principal=Principal(user.name),
            host=host,
            method=SESSION,
            credential=replace(user, credentials=()),
            ends_at_ms=session.ends_at_ms,
            csrf=session.csrf,
        )

    # ── attempts ──

    def refuse_locked(self, host: str, user: str) -> None:
        """`TooManyAttemptsError`: logins of this user or from this address are refused for a while."""
        now_ms = self.clock.boot_ms()
        locked_ms = max(
            self.hosts_limits.locked_ms(host, now_ms), self.users_limits.locked_ms(user[:_NAME_CHARS_MAX], now_ms)
        )
        if locked_ms:
            raise TooManyAttemptsError(locked_ms)

    def begin_at_once(self, host: str, user: str) -> None:
        """Begin an attempt that ends without a wait in between. `TooManyAttemptsError`; else `attempt_ended` has to follow."""
        self.refuse_locked(host, user)
        if not self._may_begin(host, user):
            raise TooManyAttemptsError(_UNDER_WAY_RETRY_MS)
        self._under_way(host, user)

    def attempt_ended(self, host: str, user: str, *, succeeded: bool | None) -> None:
        """What became of an attempt that has begun. None: nothing was tried."""
        now_ms, name = self.clock.boot_ms(), user[:_NAME_CHARS_MAX]
        self.hosts_limits.end(host)
        self.users_limits.end(name)
        if succeeded:
            self.users_limits.succeeded(name)
        elif succeeded is False:
            self.hosts_limits.failed(host, now_ms)
            self.users_limits.failed(name, now_ms)
        self._attempt_ended.notify()

    async def _begin(self, host: str, user: str) -> None:
        """Begin an attempt, once those under way leave room for it. `TooManyAttemptsError`."""
        self.refuse_locked(host, user)
        while not self._may_begin(host, user):
            await self._attempt_ended.wait()
            self.refuse_locked(host, user)
        self._under_way(host, user)

    def _may_begin(self, host: str, user: str) -> bool:
        now_ms = self.clock.boot_ms()
        return self.hosts_limits.may_begin(host, now_ms) and self.users_limits.may_begin(user[:_NAME_CHARS_MAX], now_ms)

    def _under_way(self, host: str, user: str) -> None:
        self.hosts_limits.begin(host)
        self.users_limits.begin(user[:_NAME_CHARS_MAX])

    def close(self) -> None:
        """End the threads that check secrets."""
        self.checks.close()
