"""How Spark's processes reach a cluster: through its agents, through its store and object storage, or both.

The one rule: what may hold a password is pickled, because executors need it, and never shown.

`bootstrap` is a Kafka address: it finds agents, and with them the tail that is not in object storage yet. `store` and `objects` are
URLs: with them, executors read what is published straight from object storage. `learned` asks the brokers for the URLs.
"""

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from holdfast.client.addresses import parse_bootstrap
from holdfast.objects.urls import parse_objects_url
from holdfast.stores.sqlite.settings import parse_url
from holdfast.stores.urls import parse_store_url
from holdfast.vocabulary.errors import InvalidError

_log: Final = logging.getLogger(__name__)

_FORMS: Final = "bootstrap (host:port), or store and objects (URLs), or all three"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAddress:
    """Addresses of one cluster. Checked when made; nothing is opened."""

    bootstrap: str = ""
    store: str = ""
    objects: str = ""

    def __post_init__(self) -> None:
        if bool(self.store) != bool(self.objects):
            missing = "objects" if self.store else "store"
            raise InvalidError(f"option {missing}", "", "a URL: store and objects are given together")
        if not self.bootstrap and not self.store:
            raise InvalidError("way to a cluster", "nothing", _FORMS)
        if self.bootstrap:
            parse_bootstrap(self.bootstrap)
        if self.store:
            _check_shared("store", self.store, parse_store_url(self.store).shown)
            _check_shared("objects", self.objects, parse_objects_url(self.objects).shown)

    def __repr__(self) -> str:
        store = parse_store_url(self.store).shown if self.store else ""
        objects = parse_objects_url(self.objects).shown if self.objects else ""
        return f"Reach(bootstrap={self.bootstrap!r}, store={store!r}, objects={objects!r})"

    def with_discovered_urls(self) -> "ClusterAddress":
        """With store and objects as the brokers tell them; as it is where they are known already, or kept secret.

        A broker that is on another machine may name files that are not here: then everything is read through agents.
        """
        if self.store or not self.bootstrap:
            return self
        from holdfast.client.brokers import BrokerClient
        from holdfast.client.loop_thread import run

        told = run(BrokerClient.fetch_cluster_urls(self.bootstrap))
        if not told.store or not told.objects:
            _log.warning(
                "the brokers at %s do not tell where their store and objects are (a URL that holds a secret is kept secret): "
                "everything is read through agents; to read straight from object storage, give the options store and objects",
                self.bootstrap,
            )
            return self
        reason = why_store_invisible(told.store) or why_objects_invisible(told.objects)
        if reason:
            _log.warning(
                "%s: everything is read through agents; to read straight from object storage, give the options store and "
                "objects as they are seen from here",
                reason,
            )
            return self
        return replace(self, store=told.store, objects=told.objects)


def why_objects_invisible(url: str) -> str:
    """Why this process cannot see a `file:` URL's folder; "" if it can, or if it is no file URL."""
    parts = urlsplit(url)
    if parts.scheme == "memory":
        return "memory: is seen by its own process only"
    folder = Path(unquote(parts.path))
    if parts.scheme == "file" and not folder.is_dir():
        return f"the objects folder {folder} is not on this machine"
    return ""


def why_store_invisible(url: str) -> str:
    """The same for the file of a `sqlite:` URL."""
    parsed = parse_store_url(url)
    if parsed.parts.scheme == "memory":
        return "memory: is seen by its own process only"
    if parsed.parts.scheme == "sqlite":
        path, _ = parse_url(parsed)
        if not path.is_file():
            return f"the store's file {path} is not on this machine"
    return ""


def _check_shared(what: str, url: str, shown: str) -> None:
    if urlsplit(url).scheme == "memory":
        raise InvalidError(f"option {what}", shown, "a URL that other processes can open, which memory: is not")
