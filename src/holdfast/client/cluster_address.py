"""Where a cluster is: its brokers, its store and its object storage. A value; nothing is opened here.

The one rule: it may hold a password, so it is pickled (executors need it) and never printed.

`bootstrap` is a Kafka address; through the brokers the whole log can be read. `store` and `objects` are URLs; with them, published
records are read straight from object storage, and the brokers serve only the tail.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from holdfast.client.addresses import parse_bootstrap
from holdfast.vocabulary.errors import InvalidError

_USER_INFO: Final = re.compile("//[^/@]*@")
_PUBLIC_OPTIONS: Final = frozenset({"endpoint", "region", "account_name"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAddress:
    """Addresses of one cluster. At least `bootstrap`, or `store` and `objects`."""

    bootstrap: str = ""
    store: str = ""
    objects: str = ""

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
            f"ClusterAddress(bootstrap={self.bootstrap!r}, store={redacted_url(self.store)!r}, "
            f"objects={redacted_url(self.objects)!r})"
        )


def redacted_url(url: str) -> str:
    """The URL for logs and errors: no user or password, and no option value that may be a secret."""
    parts = urlsplit(url)
    options = "&".join(
        f"{name}={value if name in _PUBLIC_OPTIONS else '***'}"
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
    )
    return _USER_INFO.sub("//***@", parts._replace(query=options, fragment="").geturl())
