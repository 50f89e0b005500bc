"""Users and their SCRAM credentials over Kafka's own APIs. Clients salt passwords themselves: none is ever sent.

    DescribeUserScramCredentials  50   version 0
    AlterUserScramCredentials     51   version 0

A listener without authentication has no users to show, and refuses to make some.
"""

from collections import Counter
from typing import Any, Final

from holdfast.agent.access_control import AccessControl
from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.gateways.kafka.errors import CLUSTER_NOT_AUTHORIZED, ApiError, code_of
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.enums import ScramMechanismType
from holdfast.kafka.error_codes import ErrorCode
from holdfast.security.acls import Operation
from holdfast.security.scram import ScramMechanism, credential_of_salted
from holdfast.security.store import User
from holdfast.vocabulary.errors import HoldfastError, InvalidError

_NO_LOGINS: Final = "SCRAM credentials are for listeners with authentication: serve with --sasl"
_DONE: Final[ResponseFields] = {"error_code": ErrorCode.NONE, "error_message": None}


async def describe_user_scram_credentials(call: RequestContext, request: Any) -> ResponseFields:
    """The mechanisms and iterations of users: of all, or of those that are named."""
    security = call.backend.security
    if not call.allows_cluster(Operation.DESCRIBE):
        return {**CLUSTER_NOT_AUTHORIZED, "results": ()}
    try:
        users = {user.name: user for user in await security.control.store.users()} if security is not None else {}
    except HoldfastError as error:
        return {"error_code": code_of(error), "error_message": str(error), "results": ()}
    named = Counter(each.name for each in request.users or ()) or dict.fromkeys(users, 1)
    results = [_described(name, users.get(name), duplicate=times > 1) async for name, times in call.each(named.items())]
    return {**_DONE, "results": results}


def _described(name: str, user: User | None, *, duplicate: bool) -> ResponseFields:
    if duplicate:
        refusal = _refused(name, ErrorCode.DUPLICATE_RESOURCE, "Cannot describe a user twice in one request.")
        return {**refusal, "credential_infos": ()}
    if user is None:
        return {**_not_found(name, "describe"), "credential_infos": ()}
    return {
        **_DONE,
        "user": name,
        "credential_infos": [
            {"mechanism": ScramMechanismType[each.mechanism.name], "iterations": each.iterations}
            for each in user.credentials
        ],
    }


async def alter_user_scram_credentials(call: RequestContext, request: Any) -> ResponseFields:
    """Delete and set credentials; each user is done as a whole or refused as a whole."""
    security = call.backend.security
    changes: dict[str, list[Any]] = {}
    async for each in call.each((*request.deletions, *request.upsertions)):
        changes.setdefault(each.name, []).append(each)
    if not call.allows_cluster(Operation.ALTER):
        return {"results": [{**CLUSTER_NOT_AUTHORIZED, "user": name} async for name in call.each(changes)]}
    if security is None:
        refusals = {each.name: _not_found(each.name, "delete") async for each in call.each(request.deletions)}
        async for each in call.each(request.upsertions):
            refusals[each.name] = _refused(each.name, ErrorCode.UNSUPPORTED_VERSION, _NO_LOGINS)
        return {"results": list(refusals.values())}
    results = [await _altered(security.control, name, listed) async for name, listed in call.each(changes.items())]
    return {"results": results}


async def _altered(control: AccessControl, name: str, changes: list[Any]) -> ResponseFields:
    try:
        mechanisms = [_mechanism(each.mechanism) for each in changes]
        if len({*mechanisms}) < len(mechanisms):
            raise ApiError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in one request.")
        upserted = [
            credential_of_salted(
                mechanism, bytes(each.salted_password), salt=bytes(each.salt), iterations=each.iterations
            )
            for each, mechanism in zip(changes, mechanisms, strict=True)
            if hasattr(each, "salted_password")
        ]
        deleted = [each for each in mechanisms if each not in {credential.mechanism for credential in upserted}]
        version = 0
        if deleted:
            gone = await control.store.delete_credentials(name, deleted)
            if gone is None:
                return _not_found(name, "delete")
            version = gone
        if upserted:
            version = max(version, await control.store.set_credentials(name, upserted))
        await control.users_seen(version)
    except ApiError as error:
        return _refused(name, error.code, str(error))
    except InvalidError as error:
        return _refused(name, ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error))
    except HoldfastError as error:
        return _refused(name, code_of(error), str(error))
    return {**_DONE, "user": name}


def _mechanism(number: int) -> ScramMechanism:
    try:
        return ScramMechanism[ScramMechanismType(number).name]
    except ValueError:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"Unknown SCRAM mechanism {number}") from None


def _refused(user: str, code: ErrorCode, text: str) -> ResponseFields:
    return {"user": user, "error_code": code, "error_message": text}


def _not_found(user: str, action: str) -> ResponseFields:
    text = f"Attempt to {action} a user credential that does not exist: {user[:200]}"
    return _refused(user, ErrorCode.RESOURCE_NOT_FOUND, text)


APIS: Final = (
    Api(
        key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        versions=(0, 0),
        flexible_from=0,
        control=describe_user_scram_credentials,
    ),
    Api(
        key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible_from=0, control=alter_user_scram_credentials
    ),
)
