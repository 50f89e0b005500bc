-- What became of one write of a batch. If the batch did not arrive, it is refused for ever: its lane carries no other batch.
--
-- KEYS  meta outcome
-- ARGV  incarnation, version seen, batch number, place of the write in the batch, mark kept (s)
-- Gives {"ok", head, version or 0}, or {"back", head, incarnation}.

local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'head')
local head = tonumber(meta[2] or '-1')
if meta[1] ~= ARGV[1] or head < tonumber(ARGV[2]) then
  return {'back', head, meta[1] or 'none'}
end
local words = {}
for word in string.gmatch(redis.call('GET', KEYS[2]) or '', '%S+') do
  words[#words + 1] = word
end
if words[1] == ARGV[3] then
  return {'ok', head, tonumber(words[ARGV[4] + 2] or '0')}
end
redis.call('SET', KEYS[2], 'refused', 'EX', ARGV[5])
return {'ok', head, 0}
