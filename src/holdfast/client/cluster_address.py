"""Where a cluster is: its brokers, its store and its object storage. A value; nothing is opened here.

The one rule: it may hold a password, so it is pickled (executors need it) and never printed.

`bootstrap` is a Kafka address; through the brokers the whole log can be read. `store` and `objects` are URLs; with them, published
records are read straight from object storage, and the brokers serve only the tail.
"""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from holdfast.client.addresses import parse_bootstrap
from holdfast.client.broker_login import BrokerLogin
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.redaction import redacted


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAddress:
    """Addresses of one cluster. At least `bootstrap`, or `store` and `objects`."""

    bootstrap: str = ""
    store: str = ""
    objects: str = ""
    login: BrokerLogin | None = field(default=None, repr=False)
    """How to log in to the brokers, and TLS; None: neither."""

    def __post_init__(self) -> None:
        if bool(self.store) != bool(self.objects):
            missing = "objects" if self.store else "store"
            raise InvalidError(f"option {missing}", "", "a URL: store and objects are given together")
        if not self.bootstrap and not self.store:
            raise InvalidError(
                "cluster address", "", "bootstrap (host:port), or store and objects (URLs), or all three"
            )
        if self.bootstrap:
            parse_bootstrap(self.bootstrap)
        for name, url in (("store", self.store), ("objects", self.objects)):
            if urlsplit(url).scheme == "memory":
                raise InvalidError(f"option {name}", url, "a URL that other processes can open, which memory: is not")

    def __repr__(self) -> str:
        return (
            f"ClusterAddress(bootstrap={self.bootstrap!r}, store={redacted(self.store)!r}, "
            f"objects={redacted(self.objects)!r})"
        )
