-- Creates the namespace, or returns its identity. Never creates beside leftovers: they mean that a part was deleted.
--
-- KEYS  meta entries index owned sessions ttls log
-- ARGV  incarnation for a new namespace, format
-- Returns {incarnation, head, format}, or {"leftover", key, type} for a key that should not be there or is of another type.

local types = {'hash', 'hash', 'zset', 'zset', 'zset', 'hash', 'stream'}
local exists = redis.call('EXISTS', KEYS[1]) == 1
for i, key in ipairs(KEYS) do
  local found = redis.call('TYPE', key).ok
  if found ~= 'none' and (found ~= types[i] or not exists) then
    return {'leftover', key, found}
  end
end
if not exists then
  redis.call('HSET', KEYS[1], 'incarnation', ARGV[1], 'format', ARGV[2], 'head', 0, 'bytes', 0, 'gone', 0, 'gone_bytes', 0)
end
return redis.call('HMGET', KEYS[1], 'incarnation', 'head', 'format')
