"""Every test that asks for a `kernel` runs on both."""

import pytest

from holdfast.log.batches.kernels import NATIVE, PURE, BatchKernel


@pytest.fixture(params=["pure", "native"])
def kernel(request: pytest.FixtureRequest) -> BatchKernel:
    if request.param == "pure":
        return PURE
    if NATIVE is None:  # where a compiler is, test_native says that this must not happen
        pytest.skip("the C extension is not built")
    return NATIVE
