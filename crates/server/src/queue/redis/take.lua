-- ARGV: worker, how many at most, milliseconds of lease. Returns execution, tenant, priority, deliveries, entry of each.
local worker, most, time = ARGV[1], tonumber(ARGV[2]), now()

-- What became due in one go is bounded; the next taker goes on.
for _, execution in ipairs(redis.call('ZRANGEBYSCORE', prefix .. 'later', '-inf', time, 'LIMIT', 0, 100)) do
  redis.call('ZREM', prefix .. 'later', execution)
  give_back(execution, read_job(execution))
end
for _, execution in ipairs(redis.call('ZRANGEBYSCORE', prefix .. 'leases', '-inf', time, 'LIMIT', 0, 100)) do
  local job = read_job(execution)
  release(execution, job)
  give_back(execution, job)
end

-- The next of a tenant's, now pending for this worker; nil when there is none.
local function next_of(priority, tenant)
  local stream = stream_key(priority, tenant)
  local front = redis.call('ZPOPMIN', front_key(priority, tenant))
  if front[1] then
    -- By name and not by idle time (XAUTOCLAIM): each lease has a length of its own.
    redis.call('XCLAIM', stream, GROUP, worker, 0, redis.call('HGET', job_key(front[1]), 'entry'), 'JUSTID')
    return front[1]
  end
  if redis.call('EXISTS', stream) == 0 then return nil end
  local found = redis.call('XREADGROUP', 'GROUP', GROUP, worker, 'COUNT', 1, 'STREAMS', stream, '>')
  if found then return found[1][2][1][2][2] end
  -- With the stream its group goes too, and names of workers that are no more.
  if redis.call('XLEN', stream) == 0 then redis.call('DEL', stream) end
  return nil
end

local taken = {}
for priority = 2, 0, -1 do
  local turns = turns_key(priority)
  while #taken < most do
    local tenant = redis.call('ZRANGE', turns, 0, 0)[1]
    if not tenant then break end
    local execution = next_of(priority, tenant)
    if execution then
      local job = read_job(execution)
      change_state(execution, job, 'taken')
      redis.call('HSET', job_key(execution), 'worker', worker, 'deliveries', job.deliveries + 1)
      redis.call('ZADD', prefix .. 'leases', time + ARGV[3], execution)
      redis.call('ZADD', turns, redis.call('INCR', prefix .. 'turn'), tenant)
      table.insert(taken, {execution, job.tenant, job.priority, tostring(job.deliveries + 1), job.entry})
    else
      redis.call('ZREM', turns, tenant)
    end
  end
end
return taken
