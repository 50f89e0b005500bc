-- The store: one row that orders commits, the keys, the sessions, the change log, and what became of each commit.
-- `{schema}`, `{channel}` and `{incarnation}` are filled in by schema.py. {channel} rings after commits, {channel}_due when some
-- session ends sooner than was known. Deadlines are by clock_timestamp(): now() is when a transaction began.

CREATE TABLE {schema}.meta (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    schema_version integer NOT NULL,
    gone_until bigint NOT NULL DEFAULT 0,  -- the change log no longer holds commits up to here
    views_digest text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Whoever writes locks this row first and holds it until the end of the transaction: versions follow commit order.
CREATE TABLE {schema}.head (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version bigint NOT NULL DEFAULT 0,
    incarnation text NOT NULL,  -- another one: another store
    -- No session is due before this. Renewals only move deadlines away, so it may be early, never late; a commit
    -- that finds it in the future need not look at the sessions at all.
    next_due timestamptz NOT NULL DEFAULT 'infinity'
);
INSERT INTO {schema}.head (incarnation) VALUES ('{incarnation}');

CREATE TABLE {schema}.entries (
    key text COLLATE "C" PRIMARY KEY,
    value text NOT NULL,
    version bigint NOT NULL,
    session text
) WITH (fillfactor = 80);
CREATE INDEX entries_by_session ON {schema}.entries (session) WHERE session IS NOT NULL;

CREATE TABLE {schema}.sessions (
    id text PRIMARY KEY,
    ttl_ms bigint NOT NULL,
    deadline timestamptz NOT NULL  -- not indexed, so that a renewal touches one page
) WITH (fillfactor = 50);

CREATE TABLE {schema}.changes (
    version bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text,
    session text,
    deleted boolean NOT NULL,
    PRIMARY KEY (version, key)
);

CREATE TABLE {schema}.commits (
    id text COLLATE "C" PRIMARY KEY,  -- begins with the version its sender knew, so that ids grow with time
    version bigint,  -- null: somebody resolved it as not committed, so it never will be
    at timestamptz NOT NULL
);


-- End one session and remove its keys as commit at_version + 1. Needs the head's lock. Returns the version then.
-- The deadline is compared again by the delete itself: a renewal that came first keeps the session.
CREATE FUNCTION {schema}.end_session(ended text, due_at timestamptz, at_version bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {schema}.sessions WHERE id = ended AND deadline <= due_at;
    IF NOT FOUND THEN
        RETURN at_version;
    END IF;
    WITH gone AS (DELETE FROM {schema}.entries WHERE session = ended RETURNING key)
    INSERT INTO {schema}.changes (version, key, deleted) SELECT at_version + 1, gone.key, true FROM gone;
    IF FOUND THEN
        RETURN at_version + 1;
    END IF;
    RETURN at_version;
END $$;


-- End every overdue session, each as a commit of its own. Needs the head's lock; writes the head. Returns the version then.
CREATE FUNCTION {schema}.reap_overdue(at_version bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    due_at timestamptz := clock_timestamp();
    overdue text;
BEGIN
    FOR overdue IN SELECT id FROM {schema}.sessions WHERE deadline <= due_at ORDER BY deadline, id LOOP
        at_version := {schema}.end_session(overdue, due_at, at_version);
    END LOOP;
    UPDATE {schema}.head
    SET version = at_version,
        next_due = coalesce((SELECT min(deadline) FROM {schema}.sessions), 'infinity');
    RETURN at_version;
END $$;


-- A batch of commits in one step, each judged by itself, in order. The arrays of requirements and operations run through
-- all commits; the counts say how many belong to each. Required version 0: absent. Operation without value: delete.
-- Answers per commit its version, or null with the dead session if that was the reason and one row per required key as it was
-- found. The last row tells the version of the store: if the last commit did not come through, row 0 follows, with version and
-- incarnation. Nothing is done if the store is not the one the caller knows: row 0 comes alone. An id that was resolved as not
-- committed makes the whole batch fail on the key of `commits`: nobody waits for a batch of which one commit was given up.
-- Most batches are of one small commit. Every statement and every expression costs such a one a few microseconds.
CREATE FUNCTION {schema}.commit_batch(
    known_incarnation text, known_version bigint,
    ids text[], require_counts integer[], apply_counts integer[],
    require_keys text[], require_versions bigint[],
    apply_keys text[], apply_values text[], apply_sessions text[]
) RETURNS TABLE (
    nth integer, outcome bigint, detail text,
    found_key text, found_value text, found_version bigint, found_session text
)
LANGUAGE plpgsql AS $$
DECLARE
    the_incarnation text;
    is_due boolean;
    expected bigint;  -- the head is written once, as if every commit came through; most do
    began_at bigint;
    at_version bigint;
    require_from integer := 1;
    require_to integer;
    apply_from integer := 1;
    apply_to integer;
    held boolean;
    dead text;
BEGIN
    UPDATE {schema}.head h SET version = h.version + cardinality(ids)
    RETURNING h.version, h.version - cardinality(ids), h.incarnation, h.next_due <= clock_timestamp()
    INTO STRICT expected, began_at, the_incarnation, is_due;
    at_version := began_at;
    IF the_incarnation <> known_incarnation OR at_version < known_version THEN
        UPDATE {schema}.head h SET version = began_at;
        RETURN QUERY SELECT 0, at_version, the_incarnation, NULL::text, NULL::text, NULL::bigint, NULL::text;
        RETURN;
    END IF;
    IF is_due THEN
        at_version := {schema}.reap_overdue(at_version);
        expected := at_version;
    END IF;

    FOR n IN 1 .. cardinality(ids) LOOP
        require_to := require_from + require_counts[n] - 1;
        apply_to := apply_from + apply_counts[n] - 1;
        held := true;
        dead := NULL;
        FOR r IN require_from .. require_to LOOP
            held := coalesce((SELECT e.version FROM {schema}.entries e WHERE e.key = require_keys[r]), 0)
                = require_versions[r];
            EXIT WHEN NOT held;
        END LOOP;
        IF held AND apply_sessions IS NOT NULL THEN
            FOR o IN apply_from .. apply_to LOOP
                CONTINUE WHEN apply_sessions[o] IS NULL;  -- apart, so that a put without session asks no table
                IF NOT EXISTS (SELECT FROM {schema}.sessions s WHERE s.id = apply_sessions[o]) THEN
                    dead := apply_sessions[o];
                    held := false;
                    EXIT;
                END IF;
            END LOOP;
        END IF;

        nth := n;
        IF NOT held THEN
            outcome := NULL;
            detail := dead;
            IF require_from > require_to THEN
                RETURN NEXT;
            END IF;
            FOR r IN require_from .. require_to LOOP
                found_key := require_keys[r];
                SELECT e.value, e.version, e.session INTO found_value, found_version, found_session
                FROM {schema}.entries e WHERE e.key = found_key;
                RETURN NEXT;
            END LOOP;
            detail := NULL; found_key := NULL; found_value := NULL; found_version := NULL; found_session := NULL;
        ELSE
            IF apply_from <= apply_to THEN
                at_version := at_version + 1;
                INSERT INTO {schema}.commits (id, version, at) VALUES (ids[n], at_version, clock_timestamp());
                FOR o IN apply_from .. apply_to LOOP
                    IF apply_values[o] IS NOT NULL THEN
                        -- Cheaper than ON CONFLICT, and as safe: nobody else writes while we have the head's lock.
                        UPDATE {schema}.entries e
                        SET value = apply_values[o], version = at_version, session = apply_sessions[o]
                        WHERE e.key = apply_keys[o];
                        IF NOT FOUND THEN
                            INSERT INTO {schema}.entries (key, value, version, session)
                            VALUES (apply_keys[o], apply_values[o], at_version, apply_sessions[o]);
                        END IF;
                    ELSE
                        DELETE FROM {schema}.entries e WHERE e.key = apply_keys[o];
                        CONTINUE WHEN NOT FOUND;
                    END IF;
                    INSERT INTO {schema}.changes (version, key, value, session, deleted)
                    VALUES (at_version, apply_keys[o], apply_values[o], apply_sessions[o], apply_values[o] IS NULL);
                END LOOP;
            END IF;
            outcome := at_version;
            RETURN NEXT;
        END IF;
        require_from := require_to + 1;
        apply_from := apply_to + 1;
    END LOOP;

    IF at_version <> expected THEN
        UPDATE {schema}.head h SET version = at_version;
    END IF;
    IF at_version > began_at THEN
        PERFORM pg_notify('{channel}', '');
    END IF;
    IF NOT held THEN
        nth := 0;
        outcome := at_version;
        detail := the_incarnation;
        RETURN NEXT;
    END IF;
END $$;


-- What became of a commit, for ever: an unknown id is marked, so that the commit, should it still come, is refused.
CREATE FUNCTION {schema}.resolve_commit(asked text, OUT version bigint, OUT incarnation text, OUT committed_as bigint)
LANGUAGE plpgsql AS $$
BEGIN
    SELECT h.version, h.incarnation INTO STRICT version, incarnation FROM {schema}.head h FOR UPDATE;
    SELECT c.version INTO committed_as FROM {schema}.commits c WHERE c.id = asked;
    IF NOT FOUND THEN
        INSERT INTO {schema}.commits (id, version, at) VALUES (asked, NULL, clock_timestamp());
    END IF;
END $$;


-- Start a session; asked again with the same id, it is the same session.
CREATE FUNCTION {schema}.open_session(opened text, granted_ms bigint, OUT version bigint, OUT incarnation text)
LANGUAGE plpgsql AS $$
DECLARE
    due timestamptz;
    ends_at timestamptz;
BEGIN
    SELECT h.version, h.incarnation, h.next_due INTO STRICT version, incarnation, due
    FROM {schema}.head h FOR UPDATE;
    ends_at := clock_timestamp() + granted_ms * interval '1 millisecond';
    INSERT INTO {schema}.sessions AS s (id, ttl_ms, deadline) VALUES (opened, granted_ms, ends_at)
    ON CONFLICT (id) DO NOTHING;
    IF ends_at < due THEN
        UPDATE {schema}.head h SET next_due = ends_at;
        PERFORM pg_notify('{channel}_due', '');
    END IF;
END $$;


-- Renew sessions: those that are not overdue live for another TTL, and their ids are answered. One that is overdue is reaped.
CREATE FUNCTION {schema}.renew_sessions(asked text[], OUT version bigint, OUT incarnation text, OUT alive text[])
LANGUAGE plpgsql AS $$
DECLARE
    renewed_at timestamptz;
    soonest timestamptz;
BEGIN
    -- Before the renewals, because reaping locks the head: everybody locks the head first and sessions second.
    IF EXISTS (SELECT FROM {schema}.sessions s WHERE s.id = ANY (asked) AND s.deadline <= clock_timestamp()) THEN
        PERFORM {schema}.reap();
    END IF;
    renewed_at := clock_timestamp();
    WITH renewed AS (
        UPDATE {schema}.sessions s SET deadline = renewed_at + s.ttl_ms * interval '1 millisecond'
        WHERE s.id = ANY (asked) AND s.deadline > renewed_at
        RETURNING s.id, s.deadline
    )
    SELECT coalesce(array_agg(r.id), '{}'), min(r.deadline) INTO alive, soonest FROM renewed r;
    SELECT h.version, h.incarnation INTO STRICT version, incarnation FROM {schema}.head h;
    -- Only a clock that stepped back can bring a deadline before what the head promises.
    UPDATE {schema}.head h SET next_due = soonest WHERE h.next_due > soonest;
END $$;


-- End overdue sessions, if any, and say how long until the next may be due (null: there is none).
CREATE FUNCTION {schema}.reap(OUT version bigint, OUT incarnation text, OUT next_due_ms double precision)
LANGUAGE plpgsql AS $$
DECLARE
    due timestamptz;
    reaped_to bigint;
BEGIN
    SELECT h.version, h.incarnation, h.next_due INTO STRICT version, incarnation, due FROM {schema}.head h;
    IF due <= clock_timestamp() THEN
        SELECT h.version INTO STRICT version FROM {schema}.head h FOR UPDATE;
        reaped_to := {schema}.reap_overdue(version);
        IF reaped_to > version THEN
            version := reaped_to;
            PERFORM pg_notify('{channel}', '');
        END IF;
        SELECT h.next_due INTO STRICT due FROM {schema}.head h;
    END IF;
    IF due < 'infinity' THEN
        next_due_ms := greatest(0, extract(epoch FROM due - clock_timestamp()) * 1000);
    END IF;
END $$;


-- End a session on purpose.
CREATE FUNCTION {schema}.close_session(ended text, OUT version bigint, OUT incarnation text)
LANGUAGE plpgsql AS $$
DECLARE
    ended_as bigint;
BEGIN
    SELECT h.version, h.incarnation INTO STRICT version, incarnation FROM {schema}.head h FOR UPDATE;
    ended_as := {schema}.end_session(ended, 'infinity', version);
    IF ended_as > version THEN
        version := ended_as;
        UPDATE {schema}.head h SET version = ended_as;
        PERFORM pg_notify('{channel}', '');
    END IF;
END $$;


-- Forget a piece of the change log beyond what is kept, and commit ids past their hour. Says whether there may be more.
CREATE FUNCTION {schema}.prune(commits_kept bigint, ids_kept_ms bigint, rows_max integer) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    kept_from bigint;
    forgotten integer;
BEGIN
    -- One pruner at a time is enough; the others find nothing left to do.
    IF NOT pg_try_advisory_xact_lock(hashtext('{channel}'), 2) THEN
        RETURN false;
    END IF;
    SELECT least(h.version - commits_kept, m.gone_until + rows_max) INTO STRICT kept_from
    FROM {schema}.head h, {schema}.meta m;
    UPDATE {schema}.meta m SET gone_until = kept_from WHERE m.gone_until < kept_from;
    DELETE FROM {schema}.changes c WHERE c.version <= kept_from;
    DELETE FROM {schema}.commits c
    USING (SELECT o.id, o.at FROM {schema}.commits o ORDER BY o.id LIMIT rows_max) oldest
    WHERE c.id = oldest.id AND oldest.at < clock_timestamp() - ids_kept_ms * interval '1 millisecond';
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten = rows_max OR EXISTS (
        SELECT FROM {schema}.head h, {schema}.meta m WHERE m.gone_until < h.version - commits_kept);
END $$;
