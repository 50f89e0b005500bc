-- Forgets the outcomes of lanes that have carried no batch for long. A client that is merely quiet begins its lane again.
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
