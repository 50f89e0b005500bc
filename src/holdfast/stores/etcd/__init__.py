"""etcd: the contract on etcd's public v3 API, through a small client with an endpoint list, TLS and users.

Versions are etcd's revisions, sessions its leases, watches its watches. etcd has no id for a commit whose answer was lost:
`commit_slots` adds one. Commits of one process run concurrently, so their order is etcd's, not that of the calls.
"""

from holdfast.stores.etcd.settings import EtcdAddress, EtcdSettings
from holdfast.stores.etcd.store import EtcdStore, open_url

__all__ = ["EtcdAddress", "EtcdSettings", "EtcdStore", "open_url"]
