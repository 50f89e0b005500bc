"""SQLite: the default engine, for any number of processes on one host. Needs nothing but Python.

    location.py      the URL: which file, which settings
    host.py          what the operating system says: boot, file systems, who holds a lock
    files.py         the database's files: the same ones as at open? and the lock that writers share
    schema.py        open the file, check its durability, bring its schema and views up to date
    transaction.py   what one batch does between BEGIN and COMMIT
    faults.py        what SQLite's errors mean to a caller
    worker.py        one thread per connection, so that no disk is waited for on the event loop
    opening.py       both connections, from the first check to the last close
    batch.py         a batch of writes: locks, transaction, COMMIT
    writer.py        the queue of writes, and what is known when one gets no answer
    reader.py        snapshots: get, scan, and looks at the head of the change log
    doorbell.py      how other processes are told to look
    store.py         the contract, put together

What SQLite's readers and writers cannot know of each other, this package adds: a change log, sessions, commit ids, a doorbell.
"""

from holdfast.stores.sqlite.settings import SqliteSettings
from holdfast.stores.sqlite.store import SqliteStore, open_url

__all__ = ["SqliteSettings", "SqliteStore", "open_url"]
