"""Every error Holdfast raises, one class per action the caller can take.

Errors carry facts as arguments, so that they pickle, compare and log well; the sentence is composed in `__str__`.
A lost compare-and-swap is not an error: it is an answer (see `contracts.store.Conflict`).
"""


class HoldfastError(Exception):
    """Root of all errors raised on purpose."""


class UnavailableError(HoldfastError):
    """The service did not answer and nothing was changed. Retry later."""

    def __init__(self, service: str, reason: str) -> None:
        super().__init__(service, reason)
        self.service, self.reason = service, reason

    def __str__(self) -> str:
        return f"{self.service} is unavailable: {self.reason}"


class OutcomeUnknownError(HoldfastError):
    """The commit was sent and its answer was lost. Ask `Store.resolve(commit_id)`, then decide."""

    def __init__(self, commit_id: str, reason: str) -> None:
        super().__init__(commit_id, reason)
        self.commit_id, self.reason = commit_id, reason

    def __str__(self) -> str:
        return f"the outcome of commit {self.commit_id} is unknown: {self.reason}"


class FencedError(HoldfastError):
    """A newer epoch owns this resource. Stop: this lease can never succeed again."""

    def __init__(self, resource: str, epoch: int, current: int) -> None:
        super().__init__(resource, epoch, current)
        self.resource, self.epoch, self.current = resource, epoch, current

    def __str__(self) -> str:
        return f"{self.resource} is at epoch {self.current}, this holder is at epoch {self.epoch}"


class ExpiredError(HoldfastError):
    """The session has ended, and with it everything it held. Stop, or open another one."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what, reason)
        self.what, self.reason = what, reason

    def __str__(self) -> str:
        return f"{self.what} has ended: {self.reason}"


class InvalidError(HoldfastError):
    """The input is wrong and always will be. Fix it."""

    def __init__(self, what: str, given: object, allowed: str) -> None:
        super().__init__(what, given, allowed)
        self.what, self.given, self.allowed = what, given, allowed

    def __str__(self) -> str:
        return f"invalid {self.what} {self.given!r}: must be {self.allowed}"


class UsageError(InvalidError):
    """Input that contradicts itself or lacks something. The message says what to do."""

    def __init__(self, message: str) -> None:
        HoldfastError.__init__(self, message)
        self.what, self.given, self.allowed = message, None, ""

    def __str__(self) -> str:
        return self.what


class CorruptError(HoldfastError):
    """Stored state contradicts itself or has gone backwards. Call the operator; nothing here retries."""

    def __init__(self, what: str, found: str) -> None:
        super().__init__(what, found)
        self.what, self.found = what, found

    def __str__(self) -> str:
        return f"{self.what} is corrupt: {self.found}"


class ClosedError(HoldfastError):
    """The component was closed by this process. Do not use it again."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} is closed"
