"""What can be wrong with a request about a pipeline, beyond a wrong value."""

from holdfast.vocabulary.errors import HoldfastError, InvalidError


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
        super().__init__("name of a pipeline", name, "a name that no other pipeline has")
        self.args = (name,)
        self.name = name

    def __str__(self) -> str:
        return f"another pipeline is called {self.name!r}"


class EditConflictError(HoldfastError):
    """Somebody else changed it meanwhile, and nothing was written. Read it again, then decide."""

    def __init__(self, what: str, saw: int, found: int) -> None:
        super().__init__(what, saw, found)
        self.what, self.saw, self.found = what, saw, found

    def __str__(self) -> str:
        return f"{self.what} is at version {self.found} now, the change was made to version {self.saw}"


class NotReadyError(InvalidError):
    """The pipeline is not in a state in which this can be done; `reasons` says what is in the way."""

    def __init__(self, what: str, pipeline: str, reasons: tuple[str, ...]) -> None:
        super().__init__(what, pipeline, "; ".join(reasons))
        self.args = (what, pipeline, reasons)
        self.pipeline, self.reasons = pipeline, reasons

    def __str__(self) -> str:
        return f"{self.what} {self.pipeline!r} is refused: " + "; ".join(self.reasons)
