"""The world of whole agents: planner, plan executor, transfers, WAL, publishing, maintenance and groups under one seed."""
