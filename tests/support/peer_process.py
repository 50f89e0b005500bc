"""An agent with streams alone, as a process: `python -m tests.support.peer_process NAME OTHER ADDRESS`. It writes its address."""

import asyncio
import sys

from tests.support.peers import MemberTable, stream_node

from holdfast.vocabulary.types import Member


async def main(name: str, other: str, address: str) -> None:
    table = MemberTable()
    table.put(Member(id=other, session=f"session-{other}", wal_id=f"wal-{other}", peer_address=address))
    async with stream_node(table, name) as node:
        print(node.peers.address, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
