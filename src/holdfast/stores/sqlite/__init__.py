"""SQLite: the default engine, for any number of processes on one host. Needs nothing but Python.

    settings.py         the URL: which file, which settings
    host.py             facts from the operating system: boot id, file systems, lock holders
    database_files.py   the database's files: unchanged since open, and the lock that writers share
    schema.py           open the file, check its durability, migrate its schema and views
    transaction.py      what one batch does between BEGIN and COMMIT
    errors.py           SQLite's errors as errors of the contract
    worker_thread.py    one thread per connection, so that the event loop never waits for a disk
    database.py         both connections, from the first check to the last close
    write_batch.py      a batch of writes: locks, transaction, COMMIT
    write_queue.py      the queue of writes, and the outcome of one that got no answer
    snapshot_reader.py  snapshots: get, scan, the head of the change log
    notifier.py         wakes the other processes after a commit
    store.py            the contract, put together

SQLite has no change log, sessions, commit ids or notifications between processes; this package adds them.
"""

from holdfast.stores.sqlite.settings import SqliteSettings, check_exists
from holdfast.stores.sqlite.store import SqliteStore, open_url

__all__ = ["SqliteSettings", "SqliteStore", "check_exists", "open_url"]
