"""Errors of requests that the gateway detects itself."""

from holdfast.pipeline.model.errors import EditConflictError
from holdfast.vocabulary.errors import HoldfastError, InvalidError


class EtagMismatchError(EditConflictError):
    """`If-Match` names a version of something else."""

    def __init__(self, what: str, tag: str) -> None:
        super().__init__(what, -1, -1)
        self.args = (what, tag)
        self.tag = tag

    def __str__(self) -> str:
        return f"{self.tag} is not a version of the {self.what}"


class MissingPartError(InvalidError):
    """A part without a default was never saved, or is of another kind than the path."""

    def __init__(self, part: str, pipeline: str, why: str) -> None:
        super().__init__(f"the {part} of {pipeline}", why, "one that was saved")
        self.args = (part, pipeline, why)

    def __str__(self) -> str:
        part, pipeline, why = self.args
        return f"pipeline {pipeline!r} has no {part}: {why}"


class UnknownAgentError(InvalidError):
    """No agent has this id."""

    def __init__(self, agent: str) -> None:
        super().__init__("agent", agent, "one of the cluster")
        self.args = (agent,)

    def __str__(self) -> str:
        return f"agent {self.args[0][:300]!r} does not exist"


class SecurityDisabledError(HoldfastError):
    """This server has no users, keys and ACLs. Start it with logins."""

    def __str__(self) -> str:
        return (
            "security is off on this server: it is on where Kafka's clients log in (serve --sasl, or --kafka-client-ca)"
        )


class CsrfError(HoldfastError):
    """A change came with the cookie of a session and without its token. Send the token."""

    def __str__(self) -> str:
        return "X-CSRF-Token is missing or wrong: changes within a session carry the token that its login has answered"


class MalformedBodyError(InvalidError):
    """A body that is not a JSON object."""

    def __init__(self, why: str) -> None:
        super().__init__("body", why, "a JSON object")
        self.args = (why,)

    def __str__(self) -> str:
        return f"the body is not a JSON object: {self.args[0]}"
