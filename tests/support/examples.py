"""How often a property is tried: few times in `make test-quick`, often in `make test-long` (the profiles of tests/conftest.py)."""

from hypothesis import settings


def examples(times: float = 1) -> settings:
    """For a property whose inputs differ so much that it needs `times` as many examples as others."""
    assert settings.default is not None
    return settings(max_examples=round(settings.default.max_examples * times))
