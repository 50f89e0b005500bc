"""Members of groups over the wire, each call in a given version."""

from datetime import timedelta
from typing import Any

from tests.support.group import subscription
from tests.support.kafka_admin import Admin, code

from holdfast.kafka.error_codes import ErrorCode


def _ms(duration_ms: int) -> timedelta:
    return timedelta(milliseconds=duration_ms)


def join_request(group: str, *, member: str = "", **changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "group_id": group,
        "session_timeout": _ms(10_000),
        "rebalance_timeout": _ms(60_000),
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription("orders")}],
    }
    return {**given, **changes}


async def joined(admin: Admin, group: str, version: int | None = None, **changes: Any) -> Any:
    """Join, with the assigned id where required."""
    answer = await admin.ask("JoinGroup", version, **join_request(group, **changes))
    if code(answer) is ErrorCode.MEMBER_ID_REQUIRED:
        again = join_request(group, **{**changes, "member": answer.member_id})
        answer = await admin.ask("JoinGroup", version, **again)
    assert code(answer) is ErrorCode.NONE, answer
    return answer


async def synced(admin: Admin, group: str, member: Any, version: int | None = None, **changes: Any) -> Any:
    return await admin.ask(
        "SyncGroup",
        version,
        **{
            "group_id": group,
            "generation_id": member.generation_id,
            "member_id": member.member_id,
            "assignments": [{"member_id": member.member_id, "assignment": b"all of it"}],
            **changes,
        },
    )


async def stable(admin: Admin, group: str = "g", **changes: Any) -> Any:
    """A group of one, stable."""
    member = await joined(admin, group, **changes)
    assert code(await synced(admin, group, member)) is ErrorCode.NONE
    return member


async def committed(
    admin: Admin, group: str, offsets: dict[int, int], member: Any = None, **changes: Any
) -> list[ErrorCode]:
    """Commit offsets of `orders`; the codes, by partition."""
    answer = await admin.ask(
        "OffsetCommit",
        changes.pop("version", 9),
        **{
            "group_id": group,
            "member_id": member.member_id if member is not None else "",
            "generation_id_or_member_epoch": member.generation_id if member is not None else -1,
            "topics": [
                {
                    "name": "orders",
                    "partitions": [
                        {"partition_index": number, "committed_offset": offset, "committed_metadata": f"at {offset}"}
                        for number, offset in offsets.items()
                    ],
                }
            ],
            **changes,
        },
    )
    return [code(each) for topic in answer.topics for each in topic.partitions]
