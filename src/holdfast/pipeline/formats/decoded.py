"""What a format makes of a batch: a JSON value for each record, or the reason why there is none.

The one rule: a record that cannot be decoded has a reason, and never fails its batch. Errors that are not a record's (a schema
registry that does not answer) are raised, and the batch is retried as a whole.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

NO_VALUE: Final = "the record has no value"

Payloads = Sequence[bytes | None]
Decode = Callable[[bytes], Any]


class BadValueError(Exception):
    """A record's bytes are not what its format says."""


@dataclass(slots=True)
class Decoded:
    """Values by record; `bad` has the number and the reason of each record without one."""

    values: list[Any]
    bad: list[tuple[int, str]] = field(default_factory=list)


class ValueDecoder(Protocol):
    """One format with its options. `UnavailableError`: retry the batch later."""

    def decode(self, payloads: Payloads) -> Decoded:
        """Decode a batch."""
        ...


def decode_each(payloads: Payloads, decode: Decode, errors: tuple[type[Exception], ...], title: str) -> Decoded:
    """Decode records one after the other. Nearly always all are good, so that is tried first."""
    try:
        return Decoded(list(map(decode, payloads)))  # type: ignore[arg-type]
    except errors:
        pass
    except TypeError:  # a record without a value
        pass
    found = Decoded([None] * len(payloads))
    for row, payload in enumerate(payloads):
        if payload is None:
            found.bad.append((row, NO_VALUE))
            continue
        try:
            found.values[row] = decode(payload)
        except BadValueError as error:
            found.bad.append((row, str(error)))
        except errors as error:
            found.bad.append((row, f"{title}: {str(error) or 'the value ends too early'}"))
    return found
