-- One batch of writes: ends overdue sessions, then checks and applies each write by itself, in order.
--
-- Nothing is rolled back when a script fails midway, so what can be refused is refused before the first write. After it only
-- a key of the wrong type can fail, which means that another program wrote to the namespace.
--
-- KEYS  meta entries index owned sessions ttls log
-- ARGV  incarnation, commits kept, log bytes max, commits channel, due channel, lane, batch number, version seen, then the writes:
--         c <requirements> <operations> (key version|"")* (p key ""|=session value | d key)*
--         o session ttl_ms | k session | x session | r
-- Returns {"ok <head> <ms until the next session is due or -1> <one word per write>", one list per conflict}; the word is the
-- version of a commit, "!" for a conflict, else 0 or 1. The list is {"" or =dead session, what each required key holds}.
-- Returns {"back", head, incarnation} when the store is not the caller's, {"refused"} when a resolve overtook this batch.

local META, ENTRIES, INDEX, OWNED, SESSIONS, TTLS, LOG = unpack(KEYS)
local call = redis.call
local lane = 'lane:' .. ARGV[6]

local meta = call('HMGET', META, 'incarnation', 'head', 'bytes', 'gone', 'gone_bytes', lane)
local head = tonumber(meta[2] or '-1')
if meta[1] ~= ARGV[1] or head < tonumber(ARGV[8]) then
  return {'back', head, meta[1] or 'none'}
end
if meta[6] and string.find(meta[6], 'refused', 1, true) then
  return {'refused'}
end

local bytes, gone, gone_bytes = tonumber(meta[3]), tonumber(meta[4]), tonumber(meta[5])
local head_before = head
local clock = call('TIME')
local now_ms = clock[1] * 1000 + math.floor(clock[2] / 1000)
local first = call('ZRANGE', SESSIONS, 0, 0, 'WITHSCORES') -- the session that is due first, and when
local sessions_moved = false
local at, last = 8, #ARGV
local seen, living, opened = {}, {}, {}

-- Lua writes large numbers as 1e+15; versions are written in digits.
local function digits(number)
  return string.format('%.0f', number)
end

local function take()
  at = at + 1
  return ARGV[at]
end

local function read(key)
  local packed = seen[key]
  if packed == nil then
    packed = call('HGET', ENTRIES, key)
    seen[key] = packed
  end
  return packed
end

local function is_alive(session)
  if living[session] == nil then
    living[session] = call('ZSCORE', SESSIONS, session) and true or false
  end
  return living[session]
end

-- Adds the next version to the log: the keys it removed, and the entries it wrote as (key, packed) pairs.
local function append(removed, written)
  head = head + 1
  local size = #removed + 64
  for i = 1, #written do
    size = size + #written[i]
  end
  bytes = bytes + size
  call('XADD', LOG, digits(head) .. '-0', digits(bytes), removed, unpack(written))
end

local function end_session(session)
  sessions_moved = true
  call('ZREM', SESSIONS, session)
  call('HDEL', TTLS, session)
  living[session] = false
  local owned = call('ZRANGEBYLEX', OWNED, '[' .. session .. '\0', '(' .. session .. '\1')
  if #owned == 0 then
    return
  end
  local removed = {}
  for i, member in ipairs(owned) do
    local key = string.sub(member, #session + 2)
    call('HDEL', ENTRIES, key)
    call('ZREM', INDEX, key)
    call('ZREM', OWNED, member)
    seen[key] = false
    removed[i] = key
  end
  append(table.concat(removed, '\n'), {})
end

local function disown(key, packed)
  local session = string.match(packed, '^%d+ (%S+) ')
  if session ~= '-' then
    call('ZREM', OWNED, session .. '\0' .. key)
  end
end

local function put(key, session, value, written)
  local old = read(key)
  if old then
    disown(key, old)
  else
    call('ZADD', INDEX, 0, key)
  end
  local owner = '-'
  if session ~= '' then
    owner = string.sub(session, 2)
    call('ZADD', OWNED, 0, owner .. '\0' .. key)
  end
  local packed = digits(head + 1) .. ' ' .. owner .. ' ' .. value
  call('HSET', ENTRIES, key, packed)
  seen[key] = packed
  written[#written + 1] = key
  written[#written + 1] = packed
end

local function delete(key, removed)
  local old = read(key)
  if old then
    disown(key, old)
    call('HDEL', ENTRIES, key)
    call('ZREM', INDEX, key)
    seen[key] = false
    removed[#removed + 1] = key
  end
end

-- Nil when it is done, else the conflict as a list.
local function commit()
  local requirements, operations = tonumber(take()), tonumber(take())
  local holds, found = true, {''}
  for i = 1, requirements do
    local packed = read(take())
    found[i + 1] = packed
    local version = packed and string.match(packed, '^%d+') or ''
    if version ~= take() then
      holds = false
    end
  end
  local plan = {}
  for i = 1, operations do
    local kind, key = take(), take()
    if kind == 'p' then
      local session, value = take(), take()
      if session ~= '' and found[1] == '' and not is_alive(string.sub(session, 2)) then
        found[1] = session
      end
      plan[i] = {key, session, value}
    else
      plan[i] = {key}
    end
  end
  if not holds then
    found[1] = ''
    return found
  end
  if found[1] ~= '' then
    return found
  end
  if operations == 0 then
    return nil
  end
  local removed, written = {}, {}
  for _, step in ipairs(plan) do
    if step[3] then
      put(step[1], step[2], step[3], written)
    else
      delete(step[1], removed)
    end
  end
  append(table.concat(removed, '\n'), written)
  return nil
end

local function open(session, ttl_ms)
  call('ZADD', SESSIONS, now_ms + ttl_ms, session)
  call('HSET', TTLS, session, ttl_ms)
  living[session] = true
  opened[session] = true
  sessions_moved = true
  return 1
end

local function keep_alive(session)
  local ttl_ms = call('HGET', TTLS, session)
  if not ttl_ms then
    return 0
  end
  call('ZADD', SESSIONS, now_ms + ttl_ms, session)
  sessions_moved = true
  return 1
end

local function close(session)
  if is_alive(session) then
    end_session(session)
  end
  return 1
end

-- Cuts the log in steps of an eighth; each entry has the bytes appended up to it, so one read gives what a cut leaves.
local function trim(commits_kept, bytes_max)
  if head - gone <= commits_kept and bytes - gone_bytes <= bytes_max then
    return
  end
  repeat
    gone = gone + math.max(1, math.floor((head - gone) / 8))
    local entry = call('XRANGE', LOG, digits(gone) .. '-0', digits(gone) .. '-0')[1]
    gone_bytes = tonumber(entry[2][1])
  until gone == head or (head - gone <= commits_kept and bytes - gone_bytes <= bytes_max)
  call('XTRIM', LOG, 'MINID', '=', digits(gone + 1) .. '-0')
  call('HSET', META, 'gone', digits(gone), 'gone_bytes', digits(gone_bytes))
end

if first[1] and tonumber(first[2]) <= now_ms then
  for _, session in ipairs(call('ZRANGEBYSCORE', SESSIONS, '-inf', now_ms)) do
    end_session(session)
  end
end

local words, conflicts = {}, {}
local outcome, has_committed = {clock[1], ARGV[7]}, false
while at < last do
  local kind, word, version = take(), 1, '0'
  if kind == 'c' then
    local before = head
    local conflict = commit()
    if conflict then
      conflicts[#conflicts + 1] = conflict
      word = '!'
    else
      word = digits(head)
    end
    if head ~= before then
      version, has_committed = word, true
    end
  elseif kind == 'o' then
    word = open(take(), tonumber(take()))
  elseif kind == 'k' then
    word = keep_alive(take())
  elseif kind == 'x' then
    word = close(take())
  end
  words[#words + 1] = word
  outcome[#outcome + 1] = version
end

if head ~= head_before then
  if has_committed then
    call('HSET', META, 'head', digits(head), 'bytes', digits(bytes), lane, table.concat(outcome, ' '))
  else
    call('HSET', META, 'head', digits(head), 'bytes', digits(bytes))
  end
  trim(tonumber(ARGV[2]), tonumber(ARGV[3]))
  call('PUBLISH', ARGV[4], digits(head))
end
if sessions_moved then
  first = call('ZRANGE', SESSIONS, 0, 0, 'WITHSCORES')
end
local due_in_ms = first[1] and digits(math.max(0, tonumber(first[2]) - now_ms)) or '-1'
-- A session that is due before all others is published: its opener may be dead by then.
if opened[first[1]] then
  call('PUBLISH', ARGV[5], due_in_ms)
end
return {'ok ' .. digits(head) .. ' ' .. due_in_ms .. ' ' .. table.concat(words, ' '), unpack(conflicts)}
