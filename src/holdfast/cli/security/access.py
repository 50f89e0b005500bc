"""How the commands about users, keys and ACLs reach the store."""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.app.embedded_etcd.place import opened_store_url
from holdfast.cli.settings_flags import effective_settings_for
from holdfast.security.key_store import ApiKeyStore
from holdfast.security.store import SecurityStore
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.random import Random, SystemRandom


@asynccontextmanager
async def administering_keys(args: argparse.Namespace) -> AsyncIterator[tuple[ApiKeyStore, Clock]]:
    """API keys of the cluster that the flags name."""
    settings = effective_settings_for(args).settings
    clock, random = RealClock(), SystemRandom()
    async with open_store(opened_store_url(settings), clock=clock, random=random, create=False) as store:
        yield ApiKeyStore(store, clock=clock, random=random), clock


@asynccontextmanager
async def administering_security(args: argparse.Namespace) -> AsyncIterator[tuple[SecurityStore, Random]]:
    """Users and ACLs of the cluster that the flags name."""
    settings = effective_settings_for(args).settings
    clock, random = RealClock(), SystemRandom()
    async with open_store(opened_store_url(settings), clock=clock, random=random, create=False) as store:
        yield SecurityStore(store, clock=clock, random=random), random
