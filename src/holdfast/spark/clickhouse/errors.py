"""Errors of the sink, by what the caller does: stop this run, or decide about rows that differ."""

from holdfast.vocabulary.errors import FencedError, HoldfastError


class RunFencedError(FencedError):
    """A newer run writes in this scope. Stop: this run can never write again."""

    def __str__(self) -> str:
        return (
            f"a newer run of {self.resource} has started (epoch {self.current}; this run has {self.epoch}): "
            "this run writes nothing any more; stop it"
        )


class GenerationFencedError(FencedError):
    """The scope has a newer generation: another checkpoint, or a full refresh. Stop."""

    def __str__(self) -> str:
        return (
            f"{self.resource} is at generation {self.current}, this query is generation {self.epoch}: "
            "its checkpoint was replaced, by another one or by a full refresh; stop it"
        )


class ReplayDiffersError(HoldfastError):
    """A batch that was recorded is repeated with other rows. Decide which ones count."""

    def __init__(self, batch: str, recorded: str, found: str) -> None:
        super().__init__(batch, recorded, found)
        self.batch, self.recorded, self.found = batch, recorded, found

    def __str__(self) -> str:
        return (
            f"{self.batch} was recorded with {self.recorded} and is repeated with {self.found}: the job is not deterministic, or "
            "its checkpoint or writeId was used for other data. With the option onDifferentReplay=keep, the recorded rows count"
        )


class BatchBlockedError(HoldfastError):
    """The batch can neither be written nor taken as written. The reason says what to do."""

    def __init__(self, batch: str, reason: str) -> None:
        super().__init__(batch, reason)
        self.batch, self.reason = batch, reason

    def __str__(self) -> str:
        return f"cannot write {self.batch}: {self.reason}"
