"""`python -m bench.observability.uncounted serve …`: `holdfast` whose histograms observe nothing: the reference without metrics."""

import sys

from holdfast.cli.main import main
from holdfast.vocabulary import histogram


def _nothing(self: histogram.Histogram, value: float, times: int = 1) -> None: ...


histogram.Histogram.observe = _nothing  # type: ignore[method-assign]

if __name__ == "__main__":
    sys.exit(main())
