"""Failed attempts: what an engine raises when one attempt did not succeed.

Every class here is an `UnavailableError`, which is all that callers need; `retry` and `counters` distinguish them.
"""

from holdfast.vocabulary.errors import UnavailableError


class ThrottledError(UnavailableError):
    """The service throttles (503, 429). Pause longer before the next attempt."""


class RequestRefusedError(UnavailableError):
    """The service refused the request: an immediate retry will not help; an operator has to act."""
