-- One page of a range, with the version it was read at.
--
-- KEYS  meta entries index
-- ARGV  version the page must be at or "", from, to (as ZRANGEBYLEX takes them), reverse (0 or 1), keys max or -1, bytes max
-- Returns {incarnation, head, more (0 or 1; -1: the head has moved), key, packed, …}.

local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'head')
local answer = {meta[1] or 'none', tonumber(meta[2] or '-1'), 0}
if ARGV[1] ~= '' and ARGV[1] ~= meta[2] then
  answer[3] = -1
  return answer
end
local keys_max, bytes_max = tonumber(ARGV[5]), tonumber(ARGV[6])
local fetched = keys_max < 0 and -1 or keys_max + 1
local keys
if ARGV[4] == '1' then
  keys = redis.call('ZREVRANGEBYLEX', KEYS[3], ARGV[3], ARGV[2], 'LIMIT', 0, fetched)
else
  keys = redis.call('ZRANGEBYLEX', KEYS[3], ARGV[2], ARGV[3], 'LIMIT', 0, fetched)
end
local size = 0
for i, key in ipairs(keys) do
  if i - 1 == keys_max or size > bytes_max then
    answer[3] = 1
    break
  end
  local packed = redis.call('HGET', KEYS[2], key)
  size = size + #key + #packed
  answer[#answer + 1] = key
  answer[#answer + 1] = packed
end
return answer
