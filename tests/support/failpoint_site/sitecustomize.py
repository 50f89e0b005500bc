"""Installs the failpoint handler of a test in every Python process below it: `FailpointFolder.environment` puts this on PYTHONPATH.

Python imports it at start, before any code of ours, also in drivers and in the Python workers of Spark's executors.
"""

import os

if _folder := os.environ.get("HOLDFAST_TEST_FAILPOINTS"):  # noqa: TID251 (how a test reaches its grandchildren)
    from pathlib import Path

    from tests.support.failpoints import FolderHandler

    from holdfast.vocabulary import failpoints

    failpoints.install(FolderHandler(Path(_folder)))

    if os.environ.get("HOLDFAST_TEST_PLANTED_BUGS"):  # noqa: TID251
        from tests.pipeline.kills import planted

        planted.install_on_import(Path(_folder))

if _folder := os.environ.get("HOLDFAST_TEST_AGENT_FAULTS"):  # noqa: TID251
    from pathlib import Path

    from tests.chaos import agent_faults

    agent_faults.install(Path(_folder))
