-- Views for people: `SELECT * FROM holdfast.partition_leases`. Made again at open whenever this text changes.
-- Where the keys are is said in kernel/keys.py and registry/keys.py; '0' is the character after '/', so each range below
-- is one prefix. json, not jsonb: a value may hold \u0000, which jsonb refuses.

DROP VIEW IF EXISTS {schema}.all_keys;
CREATE VIEW {schema}.all_keys AS
SELECT e.key, e.value::json AS value, e.version, e.session
FROM {schema}.entries e ORDER BY e.key;

DROP VIEW IF EXISTS {schema}.sessions_live;
CREATE VIEW {schema}.sessions_live AS
SELECT s.id, s.ttl_ms, s.deadline, s.deadline - clock_timestamp() AS remaining,
       (SELECT count(*) FROM {schema}.entries e WHERE e.session = s.id) AS keys
FROM {schema}.sessions s ORDER BY s.deadline;

-- One row per partition that was ever owned; no holder: nobody owns it now.
DROP VIEW IF EXISTS {schema}.partition_leases;
CREATE VIEW {schema}.partition_leases AS
SELECT left(e.resource, -6) AS topic, right(e.resource, 5)::integer AS partition,
       h.value::json ->> 'holder' AS holder, e.epoch, h.session, h.version
FROM (
    SELECT substr(key, 23) AS resource, (value::json ->> 'epoch')::bigint AS epoch FROM {schema}.entries
    WHERE key >= 'lease/epoch/partition/' AND key < 'lease/epoch/partition0'
) e
LEFT JOIN {schema}.entries h ON h.key = 'lease/holder/partition/' || e.resource
ORDER BY topic, partition;

DROP VIEW IF EXISTS {schema}.agents;
CREATE VIEW {schema}.agents AS
SELECT substr(m.key, 14) AS id, m.value::json ->> 'address' AS address, m.value::json ->> 'zone' AS zone,
       m.value::json ->> 'group' AS "group", (m.value::json ->> 'node')::integer AS node,
       to_timestamp((m.value::json ->> 'started_at_ms')::bigint / 1000.0) AS started_at, m.session
FROM {schema}.entries m
WHERE m.key >= 'member/agent/' AND m.key < 'member/agent0'
ORDER BY id;

-- The first agent of a placement is the owner, the others hold copies; no owner: the group has no agent.
DROP VIEW IF EXISTS {schema}.plan;
CREATE VIEW {schema}.plan AS
SELECT substr(p.key, 6) AS topic, (o.number - 1)::integer AS partition,
       p.value::json -> 'agents' ->> (o.placement ->> 0)::integer AS owner,
       ARRAY (
           SELECT p.value::json -> 'agents' ->> r.agent::integer
           FROM json_array_elements_text(o.placement) WITH ORDINALITY r (agent, nth) WHERE r.nth > 1 ORDER BY r.nth
       ) AS replicas,
       p.version
FROM {schema}.entries p, json_array_elements(p.value::json -> 'owners') WITH ORDINALITY o (placement, number)
WHERE p.key >= 'plan/' AND p.key < 'plan0'
ORDER BY topic, partition;

DROP VIEW IF EXISTS {schema}.transfers;
CREATE VIEW {schema}.transfers AS
SELECT substr(t.key, 10) AS resource, t.value::json ->> 'state' AS state, t.value::json ->> 'source' AS source,
       t.value::json ->> 'target' AS target, (t.value::json ->> 'epoch')::bigint AS epoch,
       to_timestamp((t.value::json ->> 'since_ms')::bigint / 1000.0) AS since
FROM {schema}.entries t
WHERE t.key >= 'transfer/' AND t.key < 'transfer0'
ORDER BY resource;

-- registry/{namespace}/partitions/{id} and registry/{namespace}/consumers/{id}; namespaces and ids hold no '/'.
DROP VIEW IF EXISTS {schema}.registry_partitions;
CREATE VIEW {schema}.registry_partitions AS
SELECT split_part(r.key, '/', 2) AS namespace, split_part(r.key, '/', 4)::integer AS partition,
       r.value::json ->> 'owner' AS owner, (r.value::json ->> 'checkpoint')::bigint AS checkpoint,
       (r.value::json ->> 'epoch')::bigint AS epoch, r.version
FROM {schema}.entries r
WHERE r.key >= 'registry/' AND r.key < 'registry0' AND split_part(r.key, '/', 3) = 'partitions'
ORDER BY namespace, partition;

DROP VIEW IF EXISTS {schema}.registry_consumers;
CREATE VIEW {schema}.registry_consumers AS
SELECT split_part(r.key, '/', 2) AS namespace, split_part(r.key, '/', 4) AS consumer,
       (r.value::json ->> 'ttl_ms')::bigint AS ttl_ms,
       to_timestamp((r.value::json ->> 'registered_at_ms')::bigint / 1000.0) AS registered_at, r.session
FROM {schema}.entries r
WHERE r.key >= 'registry/' AND r.key < 'registry0' AND split_part(r.key, '/', 3) = 'consumers'
ORDER BY namespace, consumer;
