-- One page of the change log.
--
-- KEYS  meta log sessions
-- ARGV  after which version, commits max (0: only the head), bytes max
-- Returns {incarnation, head, gone until, ms until the next session is due or -1, log entries…}; no entries when some were pruned.

local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'head', 'gone')
local answer = {meta[1] or 'none', tonumber(meta[2] or '-1'), tonumber(meta[3] or '0'), -1}
local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
if first[1] then
  local clock = redis.call('TIME')
  answer[4] = math.max(0, tonumber(first[2]) - clock[1] * 1000 - math.floor(clock[2] / 1000))
end
local after, commits_max, bytes_max = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if after < answer[3] then
  return answer
end
local from, start_bytes = '(' .. ARGV[1] .. '-0', nil
while #answer - 4 < commits_max do
  local step = math.min(32, commits_max - #answer + 4)
  local entries = redis.call('XRANGE', KEYS[2], from, '+', 'COUNT', step)
  for _, entry in ipairs(entries) do
    answer[#answer + 1] = entry
  end
  if #entries < step then
    break
  end
  local last = entries[#entries]
  start_bytes = start_bytes or tonumber(entries[1][2][1])
  if tonumber(last[2][1]) - start_bytes > bytes_max then
    break
  end
  from = '(' .. last[1]
end
return answer
