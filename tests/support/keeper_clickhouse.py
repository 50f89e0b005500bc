"""`python -m tests.support.keeper_clickhouse HOST:PORT …` is `holdfast …` whose ClickHouse has that ZooKeeper as its Keeper.

chDB has KeeperMap and the replicated engines. A replicated table stays read-only in it: it has no port for other replicas.
"""

import sys
from pathlib import Path
from typing import Any

from holdfast.cli.main import main
from holdfast.clickhouse.embedded import access_policy, engine

REPLICATED = ("KeeperMap", "ReplicatedMergeTree", "ReplicatedReplacingMergeTree")


def configure(address: str) -> None:
    host, _, port = address.partition(":")
    write = engine._write_config

    def with_keeper(*given: Any) -> Path:
        config = write(*given)
        waits = "<session_timeout_ms>120000</session_timeout_ms><operation_timeout_ms>60000</operation_timeout_ms>"
        node = f"<zookeeper><node><host>{host}</host><port>{port}</port></node>{waits}</zookeeper>"
        more = (
            f"{node}<keeper_map_path_prefix>/keeper_map</keeper_map_path_prefix><macros><replica>r1</replica></macros>"
        )
        config.write_text(config.read_text().replace("</clickhouse>", f"{more}</clickhouse>"))
        return config

    allowed = (*access_policy.ALLOWED_ENGINES, *REPLICATED)
    grants = (*engine._GRANTS, "GRANT SYSTEM SYNC REPLICA ON *.*")
    for module, name, value in (
        (access_policy, "ALLOWED_ENGINES", allowed),
        (engine, "ALLOWED_ENGINES", allowed),
        (engine, "_GRANTS", grants),
        (engine, "_write_config", with_keeper),
    ):
        setattr(module, name, value)


if __name__ == "__main__":
    configure(sys.argv.pop(1))
    sys.exit(main())
