-- Views for people: `sqlite3 -readonly holdfast.db 'SELECT * FROM partition_leases'`. Made again at open whenever this text changes.
-- Where the keys are is said in kernel/keys.py and registry/keys.py; '0' is the character after '/', so each range
-- below is one prefix. Times are UTC, except for deadlines: those are on the host's boot clock, in milliseconds.

CREATE VIEW all_keys AS
SELECT key, value, version, session FROM entries ORDER BY key;

CREATE VIEW sessions_live AS
SELECT s.id, s.ttl_ms, s.deadline_ms, (SELECT count(*) FROM entries e WHERE e.session = s.id) AS keys
FROM sessions s
ORDER BY s.deadline_ms;

-- One row per partition that was ever owned; no holder: nobody owns it now.
CREATE VIEW partition_leases AS
SELECT
    substr(e.resource, 11, length(e.resource) - 16) AS topic,
    CAST(substr(e.resource, -5) AS INTEGER) AS partition,
    json_extract(h.value, '$.holder') AS holder,
    e.epoch,
    h.session,
    h.version
FROM (
    SELECT substr(key, 13) AS resource, json_extract(value, '$.epoch') AS epoch
    FROM entries
    WHERE key >= 'lease/epoch/partition/' AND key < 'lease/epoch/partition0'
) e
LEFT JOIN entries h ON h.key = 'lease/holder/' || e.resource
ORDER BY topic, partition;

CREATE VIEW agents AS
SELECT
    substr(key, 14) AS id,
    json_extract(value, '$.address') AS address,
    json_extract(value, '$.zone') AS zone,
    json_extract(value, '$.group') AS "group",
    json_extract(value, '$.node') AS node,
    strftime('%Y-%m-%d %H:%M:%f', json_extract(value, '$.started_at_ms') / 1000.0, 'unixepoch') AS started_at,
    session
FROM entries
WHERE key >= 'member/agent/' AND key < 'member/agent0'
ORDER BY id;

-- The first agent of a placement is the owner, the others hold copies; no owner: the group has no agent.
CREATE VIEW plan AS
SELECT
    substr(p.key, 6) AS topic,
    o.key AS partition,
    json_extract(p.value, '$.agents[' || json_extract(o.value, '$[0]') || ']') AS owner,
    (
        SELECT json_group_array(json_extract(p.value, '$.agents[' || r.value || ']'))
        FROM json_each(o.value) r
        WHERE r.key > 0
    ) AS replicas,
    p.version
FROM entries p, json_each(p.value, '$.owners') o
WHERE p.key >= 'plan/' AND p.key < 'plan0'
ORDER BY topic, partition;

CREATE VIEW transfers AS
SELECT
    substr(key, 10) AS resource,
    json_extract(value, '$.state') AS state,
    json_extract(value, '$.source') AS source,
    json_extract(value, '$.target') AS target,
    json_extract(value, '$.epoch') AS epoch,
    strftime('%Y-%m-%d %H:%M:%f', json_extract(value, '$.since_ms') / 1000.0, 'unixepoch') AS since
FROM entries
WHERE key >= 'transfer/' AND key < 'transfer0'
ORDER BY resource;

-- registry/{namespace}/partitions/{id}, registry/{namespace}/consumers/{id}; namespaces and ids hold no '/'.
CREATE VIEW registry_partitions AS
SELECT
    substr(rest, 1, instr(rest, '/') - 1) AS namespace,
    CAST(substr(rest, -5) AS INTEGER) AS partition,
    json_extract(value, '$.owner') AS owner,
    json_extract(value, '$.checkpoint') AS checkpoint,
    json_extract(value, '$.epoch') AS epoch,
    version
FROM (SELECT substr(key, 10) AS rest, value, version FROM entries WHERE key >= 'registry/' AND key < 'registry0')
WHERE substr(rest, instr(rest, '/')) LIKE '/partitions/%'
ORDER BY namespace, partition;

CREATE VIEW registry_consumers AS
SELECT
    substr(rest, 1, instr(rest, '/') - 1) AS namespace,
    substr(rest, instr(rest, '/') + 11) AS consumer,
    json_extract(value, '$.ttl_ms') AS ttl_ms,
    strftime('%Y-%m-%d %H:%M:%f', json_extract(value, '$.registered_at_ms') / 1000.0, 'unixepoch') AS registered_at,
    session
FROM (SELECT substr(key, 10) AS rest, value, session FROM entries WHERE key >= 'registry/' AND key < 'registry0')
WHERE substr(rest, instr(rest, '/')) LIKE '/consumers/%'
ORDER BY namespace, consumer;
