"""The settings that make an insert one block, which is stored once: what every exactly-once writer sends.

The one rule: an insert is one block. Then it is stored whole or not at all (per partition of the table), and its token covers all
of it.
"""

from typing import Final

_ROWS_WITHOUT_END: Final = 1 << 40


def insert_settings(token: str, query: str, *, timeout_ms: int) -> dict[str, str | int]:
    """Settings that make an insert one block that is stored once."""
    return {
        "query_id": query,
        "insert_deduplicate": 1,
        "insert_deduplication_token": token,
        "deduplicate_blocks_in_dependent_materialized_views": 1,
        "async_insert": 0,
        "wait_for_async_insert": 1,
        "max_partitions_per_insert_block": 0,  # split into several inserts, a range would have several tokens
        "max_execution_time": max(1, timeout_ms // 1_000),
        "max_threads": 1,
        "max_insert_threads": 1,
        "max_block_size": _ROWS_WITHOUT_END,
        "max_insert_block_size": _ROWS_WITHOUT_END,
        "min_insert_block_size_rows": _ROWS_WITHOUT_END,
        "min_insert_block_size_bytes": 0,
        "input_format_parallel_parsing": 0,
        "wait_end_of_query": 1,
    }
