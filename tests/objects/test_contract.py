"""Every engine against the contract, on real servers."""

import pytest
from tests.support.object_engines import OBJECT_ENGINES

from holdfast.contracts.objects import Objects
from holdfast.testing import objects_contract as contract
from holdfast.testing.harness import ObjectsHarness

# moto needs seven seconds for a thousand objects, and has the pages of S3 in common with SeaweedFS.
PAGED_ENGINES = [pytest.param(each, marks=pytest.mark.long if each == "moto" else ()) for each in OBJECT_ENGINES]


class TestWrites(contract.ObjectWrites):
    # moto looks whether there is an object, and then writes it: of two requests at once both may find none.
    @pytest.mark.parametrize("engine", [each for each in OBJECT_ENGINES if each != "moto"])
    async def test_of_racing_writers_one_wins_and_its_body_stays(self, harness: ObjectsHarness) -> None:
        await super().test_of_racing_writers_one_wins_and_its_body_stays(harness)


class TestReads(contract.ObjectReads): ...


class TestListing(contract.ObjectListing):
    @pytest.mark.parametrize("engine", PAGED_ENGINES)
    async def test_more_keys_than_a_page_holds_are_listed(self, objects: Objects) -> None:
        await super().test_more_keys_than_a_page_holds_are_listed(objects)


class TestDeletion(contract.ObjectDeletion): ...


class TestFaults(contract.ObjectFaults): ...


@pytest.mark.parametrize("engine", ["seaweedfs"])  # moto forgets everything
class TestServers(contract.ObjectServers): ...
