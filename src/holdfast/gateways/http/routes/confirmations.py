"""`/v1/confirmations`: a token for one destructive call, which then takes `force=true` and `confirmation_token`."""

from datetime import UTC, datetime

import msgspec
from litestar import post
from litestar.di import NamedDependency
from litestar.params import JSONBody, SkipValidation

from holdfast.gateways.http.access import access_of
from holdfast.gateways.http.routes.dependencies import HttpRequest
from holdfast.security.confirmations import ANYBODY, Confirmations

PATH = "/v1/confirmations"
ConfirmationsDependency = NamedDependency[SkipValidation[Confirmations]]


class ConfirmationRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be confirmed."""

    action: str
    """`topic.delete`, `group.delete`, `group.reset`, `pipeline.delete`, `heap.delete`, `heap.purge` or
    `heap.dlq.delete`."""
    resource: str
    """The name of the topic, group, pipeline or heap, as in the path of the call."""


class ConfirmationToken(msgspec.Struct, frozen=True, kw_only=True):
    """The token, good once, under the name that calls take it by, and in camel case."""

    confirmation_token: str
    camel_case: str = msgspec.field(name="confirmationToken")
    expires_at: str = msgspec.field(name="expiresAt")


def principal_of(request: HttpRequest) -> str:
    """Who calls; anybody, where security is off."""
    access = access_of(request)
    return str(access.identity.principal) if access is not None and access.identity is not None else ANYBODY


@post(PATH, tags=["confirmations"], summary="Confirm a destructive call")
async def create_confirmation(
    request: HttpRequest, confirmations: ConfirmationsDependency, data: JSONBody[ConfirmationRequest]
) -> ConfirmationToken:
    """A token for one action on one resource, for who asks for it; any node takes it, once, before it expires."""
    made = await confirmations.create(data.action, data.resource, principal_of(request))
    expires_at = datetime.fromtimestamp(made.expires_at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return ConfirmationToken(
        confirmation_token=made.token, camel_case=made.token, expires_at=expires_at.replace("+00:00", "Z")
    )


HANDLERS = (create_confirmation,)
