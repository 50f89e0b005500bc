"""Failed attempts: what an engine raises when one try did not work.

Every class here is an `UnavailableError`, which is all that callers need to know; `retrying` and `counting` look closer.
"""

from holdfast.vocabulary.errors import UnavailableError


class ThrottledError(UnavailableError):
    """The service asks us to slow down (503, 429). Pause longer before the next attempt."""


class RequestRefusedError(UnavailableError):
    """The service answered, and the answer was no: trying again at once will not help. Somebody has to look."""
