"""Deletes: of what is there and of what is not."""

from holdfast.contracts.objects import Missing, Objects
from holdfast.testing.objects_contract.operations import keys_below, put


class ObjectDeletion:
    """Deleting twice is deleting once."""

    async def test_what_is_deleted_is_gone(self, objects: Objects) -> None:
        await put(objects, "gone/a")
        await put(objects, "gone/b")
        await objects.delete(["gone/a"])
        assert await objects.get("gone/a") == Missing("gone/a")
        assert await objects.get_tail("gone/a", 1) == Missing("gone/a")
        assert await keys_below(objects, "gone/") == ["gone/b"]

    async def test_deleting_a_missing_key_does_nothing(self, objects: Objects) -> None:
        await put(objects, "twice/a")
        await put(objects, "twice/b")
        await objects.delete([])
        await objects.delete(["twice/never", "twice/a", "other/never", "twice"])
        assert await keys_below(objects, "twice") == ["twice/b"]
        await objects.delete(["twice/a"])
        assert await keys_below(objects, "twice") == ["twice/b"]
