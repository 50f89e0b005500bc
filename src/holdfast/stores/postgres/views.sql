-- Views for people. Values are JSON; json, not jsonb, so that a value with \u0000 in it spoils only its own field.
-- Applied again at open whenever this text changes.

DROP VIEW IF EXISTS {schema}.all_keys;
CREATE VIEW {schema}.all_keys AS
SELECT e.key, e.value::json AS value, e.version, e.session
FROM {schema}.entries e ORDER BY e.key;

DROP VIEW IF EXISTS {schema}.sessions_live;
CREATE VIEW {schema}.sessions_live AS
SELECT s.id, s.ttl_ms, s.deadline, s.deadline - clock_timestamp() AS remaining,
       (SELECT count(*) FROM {schema}.entries e WHERE e.session = s.id) AS keys
FROM {schema}.sessions s ORDER BY s.deadline;
