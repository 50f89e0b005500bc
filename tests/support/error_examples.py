"""An example of every error class of the vocabulary."""

from holdfast.vocabulary import errors

EXAMPLES = [
    errors.UnavailableError("store", "refused"),
    errors.OutcomeUnknownError("c1", "connection lost"),
    errors.FencedError("orders:0", 3, 4),
    errors.ExpiredError("session s1", "its deadline has passed"),
    errors.InvalidError("ttl_ms", -1, "at least 100"),
    errors.UsageError("--commit needs --group"),
    errors.CorruptError("store", "version went back from 9 to 7"),
    errors.ClosedError("store"),
]
