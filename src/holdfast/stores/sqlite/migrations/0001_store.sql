-- The store: the keys, the sessions, the change log, and what became of commits. A commit of one key touches two pages:
-- the key's, and the end of the change log, which is also where the store's version and the commit's id are.

CREATE TABLE head (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    incarnation TEXT NOT NULL,
    boot_id TEXT NOT NULL,  -- the host's boot whose clock the deadlines below are on
    gone_until INTEGER NOT NULL,  -- the change log no longer holds commits up to here
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

-- The greatest version here is the store's: every commit leaves a row, and the last one's is never removed.
CREATE TABLE changes (
    version INTEGER NOT NULL,
    key TEXT NOT NULL,  -- empty: the commit changed nothing
    value TEXT,  -- null: the commit removed the key
    session TEXT,
    commit_id TEXT,  -- on one row of each commit; null if a session's end was the commit
    PRIMARY KEY (version, key)
) WITHOUT ROWID;

-- Ids of commits that left the change log within their hour, and of those that somebody asked about.
CREATE TABLE commits (
    id TEXT PRIMARY KEY,
    version INTEGER,  -- null: it was not committed, and never will be
    at_ms INTEGER NOT NULL
);
