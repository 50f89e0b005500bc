"""The cluster's own secret, which only its nodes have: kept in the store, made by the first node with security.

    security/cluster-secret   {"secret"}

The one rule: it never leaves the nodes as it is. What is derived from it proves a node to another one, or signs sessions; each use
has a derivation of its own.
"""

import hmac
from typing import Final

import msgspec

from holdfast.contracts.compare_and_swap import put_if_absent
from holdfast.contracts.store import Store
from holdfast.security.principals import Principal
from holdfast.security.store import RESERVED, SECURITY
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

CLUSTER_SECRET: Final = SECURITY + "cluster-secret"
NODE_USER: Final = RESERVED + "node"
"""The name under which nodes log in to each other's Kafka ports. No user can be called so."""
NODE: Final = Principal(NODE_USER, "Node")
"""Another node of the cluster. No ACL, key, user or certificate can name it: those are all of the kind `User`."""


class _Stored(msgspec.Struct):
    secret: str


class ClusterSecret:
    """What nodes prove themselves with, and sign with."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self.node_password = self._derived("node-password")
        self.text_token = self._derived("text-token")
        self.session_key = self._derived("session-key")

    def _derived(self, use: str) -> str:
        return hmac.digest(self._secret, use.encode(), "sha256").hex()

    def is_text_token(self, given: str) -> bool:
        """Whether another node has sent it. In constant time."""
        return hmac.compare_digest(given.encode(errors="replace"), self.text_token.encode())


async def cluster_secret(store: Store, *, clock: Clock, random: Random) -> ClusterSecret:
    """The secret of the cluster in this store."""
    made = msgspec.json.encode(_Stored(random.token() + random.token() + random.token() + random.token()))
    held = await put_if_absent(store, CLUSTER_SECRET, made, clock=clock, random=random)
    return ClusterSecret(msgspec.json.decode(held, type=_Stored).secret)
