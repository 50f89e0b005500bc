-- Deletes the outcomes of lanes without a batch for long. The lane of an idle client is written again by its next batch.
--
-- KEYS  meta
-- ARGV  outcomes kept (s)

local stale_s = redis.call('TIME')[1] - ARGV[1]
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  if string.sub(fields[i], 1, 5) == 'lane:' and tonumber(string.match(fields[i + 1], '^%d+')) < stale_s then
    redis.call('HDEL', KEYS[1], fields[i])
  end
end
return 1
