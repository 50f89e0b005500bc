"""The status of a slot as it is stored."""

import msgspec
import pytest

from holdfast.pipeline.catalog.worker_status import SlotStatus
from holdfast.pipeline.workers.status_publisher import _STATUS_BYTES_MAX, _encode_status

STATUS = SlotStatus(pipeline_id="p", generation=1, slot="0", worker_id="ann", rows=7, warnings=("slow",))


@pytest.mark.parametrize(("partitions", "listed"), [(1_000, True), (60_000, False)])
def test_a_status_with_too_many_partitions_for_a_value_does_not_list_them(partitions: int, listed: bool) -> None:
    epochs = {str(number): 1 for number in range(partitions)}
    value = _encode_status(msgspec.structs.replace(STATUS, epochs=epochs))
    assert len(value) <= _STATUS_BYTES_MAX
    read = msgspec.json.decode(value, type=SlotStatus)
    assert read.rows == 7
    assert read.epochs == (epochs if listed else {})
    assert read.warnings == (("slow",) if listed else ("slow", "60000 partitions are too many to list"))
