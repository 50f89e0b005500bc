"""Shared by the routes of security: the injected service, and credentials of a new password."""

import asyncio

from litestar.di import NamedDependency
from litestar.params import SkipValidation

from holdfast.gateways.http.errors import SecurityDisabledError
from holdfast.gateways.http.security import HttpSecurity
from holdfast.security.scram import ITERATIONS_DEFAULT, ScramCredential, ScramMechanism, credential_of
from holdfast.vocabulary.errors import InvalidError

SecurityDependency = NamedDependency[SkipValidation[HttpSecurity | None]]
_PASSWORD_BYTES_MAX = 1_024
_SALT_BYTES = 16


def secured(security: HttpSecurity | None) -> HttpSecurity:
    """The service. `SecurityDisabledError`: this server has none."""
    if security is None:
        raise SecurityDisabledError
    return security


async def new_credentials(security: HttpSecurity | None, password: str) -> list[ScramCredential]:
    """Credentials of every mechanism, made on a thread."""
    random = secured(security).authenticator.random
    if not 1 <= len(password.encode(errors="replace")) <= _PASSWORD_BYTES_MAX:
        raise InvalidError("password", f"{len(password)} characters", f"1 to {_PASSWORD_BYTES_MAX} bytes")
    salts = [bytes.fromhex(random.token() + random.token())[:_SALT_BYTES] for _ in ScramMechanism]
    return await asyncio.to_thread(
        lambda: [
            credential_of(mechanism, password, salt=salt, iterations=ITERATIONS_DEFAULT)
            for mechanism, salt in zip(ScramMechanism, salts, strict=True)
        ]
    )
