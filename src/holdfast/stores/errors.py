"""The one error that engines share. It never leaves an engine: callers get a `HoldfastError`."""


class AnswerLostError(Exception):
    """A request that must not be repeated was sent, and no response came back: its outcome is unknown."""
