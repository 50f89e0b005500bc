import pytest


@pytest.fixture(params=["memory", "sqlite"])
def engine(request: pytest.FixtureRequest) -> str:
    """Enough for what does not depend on the engine; a test that does names all of them."""
    return str(request.param)
