-- ARGV: worker, how many at most, milliseconds of lease. Returns execution, tenant, priority, deliveries, entry of each.
local worker, most, time = ARGV[1], tonumber(ARGV[2]), now()

-- What became due in one go is bounded; the next taker goes on.
for _, execution in ipairs(redis.call('ZRANGEBYSCORE', prefix .. 'later', '-inf', time, 'LIMIT', 0, 100)) do
  redis.call('ZREM', prefix .. 'later', execution)
  local job = read_job(execution)
  if job then give_back(execution, job) end
end
for _, execution in ipairs(redis.call('ZRANGEBYSCORE', prefix .. 'leases', '-inf', time, 'LIMIT', 0, 100)) do
  local job = read_job(execution)
  if job then
    release(execution, job)
    give_back(execution, job)
  else
    redis.call('ZREM', prefix .. 'leases', execution)
  end
end

-- The next of a tenant's and its entry, now pending for this worker; nil when there is none.
local function next_of(priority, tenant)
  local stream = stream_key(priority, tenant)
  local front = redis.call('ZPOPMIN', front_key(priority, tenant))
  if front[1] then
    -- By name and not by idle time (XAUTOCLAIM): each lease has a length of its own.
    local entry = front[2] .. '-0'
    redis.call('XCLAIM', stream, GROUP, worker, 0, entry, 'JUSTID')
    return front[1], entry
  end
  if redis.call('EXISTS', stream) == 0 then return nil end
  local found = redis.call('XREADGROUP', 'GROUP', GROUP, worker, 'COUNT', 1, 'STREAMS', stream, '>')
  if found then return found[1][2][1][2][2], found[1][2][1][1] end
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
    local execution, entry = next_of(priority, tenant)
    local job = execution and read_job(execution)
    if job and job.entry == entry and job.state == 'waiting' then
      change_state(execution, job, 'taken')
      redis.call('HSET', job_key(execution), 'worker', worker, 'deliveries', job.deliveries + 1)
      redis.call('ZADD', prefix .. 'leases', time + ARGV[3], execution)
      redis.call('ZADD', turns, redis.call('INCR', prefix .. 'turn'), tenant)
      table.insert(taken, {execution, job.tenant, job.priority, tostring(job.deliveries + 1), job.entry})
    elseif execution then
      -- Somebody deleted keys, or the server dropped them: what nobody knows any more must not stand in the way of the rest.
      redis.call('XACK', stream_key(priority, tenant), GROUP, entry)
      redis.call('XDEL', stream_key(priority, tenant), entry)
    else
      redis.call('ZREM', turns, tenant)
    end
  end
end
return taken
