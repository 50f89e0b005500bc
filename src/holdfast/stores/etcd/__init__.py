"""etcd: the contract on etcd's public v3 API, over a small client of our own with an endpoint list, TLS and users.

Versions are etcd's revisions, sessions its leases, watches its watches. What etcd lacks is a name for a commit whose answer
was lost: `slots` gives it one. Commits of one process run side by side, so their order is etcd's, not that of the calls.
"""

from holdfast.stores.etcd.settings import EtcdAddress, EtcdSettings
from holdfast.stores.etcd.store import EtcdStore, open_url

__all__ = ["EtcdAddress", "EtcdSettings", "EtcdStore", "open_url"]
