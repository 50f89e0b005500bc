"""Errors of requests about pipelines, and the collector that reports every mistake of a request at once, each once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from holdfast.vocabulary.errors import HoldfastError, InvalidError

ERRORS_MAX: Final = 100
"""Mistakes that one error lists."""


class UnknownPipelineError(InvalidError):
    """There is no such pipeline."""

    def __init__(self, pipeline: str) -> None:
        super().__init__("pipeline", pipeline, "a pipeline that exists")
        self.args = (pipeline,)
        self.pipeline = pipeline

    def __str__(self) -> str:
        return f"pipeline {self.pipeline[:200]!r} does not exist"


class PipelineNameTakenError(InvalidError):
    """Another pipeline has this name."""

    def __init__(self, name: str) -> None:
        super().__init__("pipeline name", name, "unique")
        self.args = (name,)
        self.name = name

    def __str__(self) -> str:
        return f"pipeline {self.name!r} already exists"


class EditConflictError(HoldfastError):
    """It was changed in the meantime, and nothing was written. Read it again, then decide."""

    def __init__(self, what: str, saw: int, found: int) -> None:
        super().__init__(what, saw, found)
        self.what, self.saw, self.found = what, saw, found

    def __str__(self) -> str:
        return f"{self.what} is at version {self.found}, the change was made to version {self.saw}"


class NotReadyError(InvalidError):
    """The pipeline's state does not allow this; `reasons` says why."""

    def __init__(self, what: str, pipeline: str, reasons: tuple[str, ...]) -> None:
        super().__init__(what, pipeline, "; ".join(reasons))
        self.args = (what, pipeline, reasons)
        self.pipeline, self.reasons = pipeline, reasons

    def __str__(self) -> str:
        return f"{self.what} {self.pipeline!r} is refused: " + "; ".join(self.reasons)


class UnknownFieldError(InvalidError):
    """A field that does not exist, often a misspelt one."""

    def __init__(self, what: str, fields: tuple[str, ...]) -> None:
        super().__init__(what, None, "one of " + ", ".join(fields))
        self.args = (what, fields)

    def __str__(self) -> str:
        return f"unknown field {self.what}: must be {self.allowed}"


class MissingFieldError(InvalidError):
    """A required field is not there."""

    def __init__(self, what: str) -> None:
        super().__init__(what, None, "")
        self.args = (what,)

    def __str__(self) -> str:
        return f"missing {self.what}"


class InvalidValuesError(InvalidError):
    """Several mistakes in one request. `errors` has each; as an `InvalidError` it is the first."""

    def __init__(self, errors: Sequence[InvalidError]) -> None:
        super().__init__(errors[0].what, errors[0].given, errors[0].allowed)
        self.args = (tuple(errors),)
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return f"{len(self.errors)} mistakes: " + "; ".join(map(str, self.errors))


class Mistakes:
    """Collects the mistakes of a request. The first one at a place counts; those inside that place are its consequences."""

    def __init__(self) -> None:
        self._errors: list[InvalidError] = []

    def add(self, error: InvalidError) -> None:
        """Note a mistake."""
        for each in error.errors if isinstance(error, InvalidValuesError) else (error,):
            if not any(_contains(known.what, each.what) for known in self._errors):
                self._errors.append(each)

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Note the mistake that the body raises, and go on behind it."""
        try:
            yield
        except InvalidError as error:
            self.add(error)

    @property
    def errors(self) -> tuple[InvalidError, ...]:
        """All that were noted."""
        return tuple(self._errors)

    def raise_if_any(self) -> None:
        """One mistake is raised as it is, several as an `InvalidValuesError`."""
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            raise InvalidValuesError(self._errors[:ERRORS_MAX])


def _contains(place: str, inner: str) -> bool:
    return inner == place or inner.startswith((f"{place}.", f"{place}["))
