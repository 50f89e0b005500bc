"""The options `bootstrap`, `storeUrl` and `objectsUrl` of source and sink; `store` and `objects` are for URLs without secrets.
Those of a login are in `login_options`.

The one rule: no secret is in an option that Spark shows. It writes options into plans, and plans into errors, logs, event logs and
its UI; by default it hides those whose names contain `url`.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from holdfast.client.cluster_address import ClusterAddress
from holdfast.objects.urls import parse_objects_url
from holdfast.spark.login_options import LOGIN_OPTIONS, login_options, parse_login
from holdfast.stores.urls import parse_store_url
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.redaction import redacted

_HIDDEN: Final = {"store": "storeUrl", "objects": "objectsUrl"}
ADDRESS_OPTIONS: Final = ("bootstrap", *_HIDDEN, *_HIDDEN.values(), *LOGIN_OPTIONS)


def parse_cluster_address(options: Mapping[str, str]) -> ClusterAddress:
    """The address that options by lower-case name give. `InvalidError` also for a URL scheme without an engine."""
    urls = {name: _url(options, name, hidden) for name, hidden in _HIDDEN.items()}
    address = ClusterAddress(bootstrap=options.get("bootstrap", ""), login=parse_login(options), **urls)
    if address.store:
        parse_store_url(address.store)
        parse_objects_url(address.objects)
    return address


def _url(options: Mapping[str, str], name: str, hidden: str) -> str:
    shown, found = options.get(name, ""), options.get(hidden.lower(), "")
    if shown and found:
        raise InvalidError(f"option {name}", redacted(shown), f"absent: {hidden} is given")
    check_shown_options(options)
    return shown or found


def check_shown_options(options: Mapping[str, str]) -> None:
    """`InvalidError`: an option that Spark shows holds a secret."""
    for name, value in options.items():
        hidden = _HIDDEN.get(name.lower())
        if hidden is not None and _holds_secret(value):
            why = "it holds a secret: Spark shows options in plans, logs and its UI, unless they are named so"
            raise InvalidError(f"option {name.lower()}", redacted(value), f"given as {hidden}, because {why}")


def _holds_secret(url: str) -> bool:
    """A user's name alone is none: stores take no tokens there."""
    user = urlsplit(url).netloc.rpartition("@")[0]
    plain = url.replace(f"{user}@", "", 1) if user and ":" not in user else url
    return redacted(plain) != plain


def address_options(address: ClusterAddress) -> dict[str, str]:
    """The options that give an address."""
    given = {"bootstrap": address.bootstrap, "storeUrl": address.store, "objectsUrl": address.objects}
    return {name: value for name, value in given.items() if value} | login_options(address.login)
