"""Every engine against the contract, on real servers."""

import pytest

from holdfast.testing import objects_contract as contract


class TestWrites(contract.ObjectWrites): ...


class TestReads(contract.ObjectReads): ...


class TestListing(contract.ObjectListing): ...


class TestDeletion(contract.ObjectDeletion): ...


class TestFaults(contract.ObjectFaults): ...


@pytest.mark.parametrize("engine", ["seaweedfs"])  # moto forgets everything
class TestServers(contract.ObjectServers): ...
