"""PostgreSQL: the store in one schema of a database, for many hosts. Needs `asyncpg` and direct (not pooled) connections."""

from holdfast.stores.postgres.store import PostgresStore, open_url

__all__ = ["PostgresStore", "open_url"]
