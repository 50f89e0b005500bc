"""The contract on a single Redis or Valkey primary with an append-only file: Lua scripts, one round trip per batch."""

from holdfast.stores.redis.store import RedisStore, open_url

__all__ = ["RedisStore", "open_url"]
