#!lua flags=no-writes,allow-stale
-- Exports redis-lock's metrics: redis_exporter -script redis-lock.lua. They become the gauges
-- redis_script_values{key="lock_waiters"} and so on, one for each numeric field of INFO lock. docs/metrics.md describes
-- how to run it and which permissions it needs.
--
-- It must never fail or return anything but numbers, because the exporter would report the server as down. So values
-- that the server does not have, or does not allow, are omitted. The flags above let it run on replicas, even without a
-- primary, and while the server is out of memory, paused or unable to save.

-- Names and values alternate, all strings, as the exporter expects.
local values = {}

local function export(name, value)
    values[#values + 1] = name
    values[#values + 1] = value
end

local info = redis.pcall('INFO', 'lock')
if type(info) ~= 'string' then
    return values -- this user may not read INFO
end
for line in string.gmatch(info, '[^\r\n]+') do
    -- lock_version, 1.0.0, is not a number.
    local name, value = string.match(line, '^(lock_[%w_]+):(%-?%d+%.?%d*)$')
    if name then
        export(name, value)
    end
    -- The reason why requests for free locks are refused is a word. Each reason gets a gauge: 1 while it applies.
    local reason = string.match(line, '^lock_acquires_refused:(%w+)$')
    for _, code in ipairs(reason and { 'OOM', 'MISCONF', 'NOREPLICAS', 'PAUSED', 'CLUSTERDOWN' } or {}) do
        export('lock_refused_' .. string.lower(code), reason == code and '1' or '0')
    end
end

-- The percentiles of INFO include a wait only after it has ended; LOCK.TOP has the current waits. Among the hundred
-- locks with the most waiters, lock_top_waiters is the longest queue, lock_top_longest_ms the longest wait,
-- lock_top_held_ms the oldest hold, and lock_top_free_ms the longest wait for a lock that no owner holds. acl_check_cmd
-- checks first, because ACL LOG records each refusal; it fails on a server without the command.
local is_known, may = pcall(redis.acl_check_cmd, 'LOCK.TOP', 'COUNT', '100')
local top = is_known and may and #values > 0 and redis.pcall('LOCK.TOP', 'COUNT', '100')
if type(top) ~= 'table' or top.err then
    return values
end
local most = { waiters = 0, longest = 0, held = 0, free = 0 }
for _, lock in ipairs(top) do
    local fields = {}
    for position = 1, #lock - 1, 2 do
        fields[lock[position]] = lock[position + 1]
    end
    fields.free = fields.held == -1 and fields.longest or 0
    for field, value in pairs(most) do
        most[field] = math.max(value, fields[field])
    end
end
export('lock_top_waiters', string.format('%.0f', most.waiters))
export('lock_top_longest_ms', string.format('%.0f', most.longest))
export('lock_top_held_ms', string.format('%.0f', most.held))
export('lock_top_free_ms', string.format('%.0f', most.free))
return values
