-- The outcome of one write of a batch. A batch that did not arrive is refused for ever: its lane has no other batch.
--
-- KEYS  meta
-- ARGV  incarnation, version seen, lane, batch number, place of the write in the batch
-- Returns {"ok", head, version or 0}, or {"back", head, incarnation}.

local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'head', 'lane:' .. ARGV[3])
local head = tonumber(meta[2] or '-1')
if meta[1] ~= ARGV[1] or head < tonumber(ARGV[2]) then
  return {'back', head, meta[1] or 'none'}
end
local words = {}
for word in string.gmatch(meta[3] or '', '%S+') do
  words[#words + 1] = word
end
if words[2] == ARGV[4] then
  return {'ok', head, tonumber(words[ARGV[5] + 3] or '0')}
end
if words[2] ~= 'refused' then
  redis.call('HSET', KEYS[1], 'lane:' .. ARGV[3], redis.call('TIME')[1] .. ' refused')
end
return {'ok', head, 0}
