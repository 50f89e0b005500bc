-- The store: one row that orders commits, the keys, the sessions, the change log, and the fate of commits that were not answered.

CREATE TABLE head (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    version INTEGER NOT NULL,
    gone_until INTEGER NOT NULL,  -- the change log no longer holds commits up to here
    incarnation TEXT NOT NULL,
    boot_id TEXT NOT NULL,  -- the host's boot whose clock the deadlines below are on
    views_digest TEXT NOT NULL
);

CREATE TABLE entries (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    version INTEGER NOT NULL,
    session TEXT
) WITHOUT ROWID;
CREATE INDEX entries_by_session ON entries (session) WHERE session IS NOT NULL;

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    ttl_ms INTEGER NOT NULL,
    deadline_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX sessions_by_deadline ON sessions (deadline_ms);

CREATE TABLE changes (
    version INTEGER NOT NULL,
    key TEXT NOT NULL,
    value TEXT,  -- null: the commit removed the key
    session TEXT,
    PRIMARY KEY (version, key)
) WITHOUT ROWID;

-- Only commits whose callers may still have to ask: a writer forgets an id in its next batch once the answer was received.
CREATE TABLE commits (
    id TEXT PRIMARY KEY,
    version INTEGER,  -- null: somebody resolved it as not committed, so it never will be
    at_ms INTEGER NOT NULL
) WITHOUT ROWID;
