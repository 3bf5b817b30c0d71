-- In front of every script. KEYS[1] is the prefix of all keys: those of one queue belong on one server, not on a cluster's many.
--
--   sequence               number of the job pushed last; entries of streams are called by it, <number>-0
--   turn                   counts turns
--   turns:<priority>       sorted set: tenants that may have something ready, by when they were last served
--   stream:<priority>:<t>  stream: jobs of a tenant, pushed and not yet done; what was taken is pending in the group `workers`
--   front:<priority>:<t>   sorted set: jobs that were given back and are ready, in the order they were pushed
--   later                  sorted set: jobs that were given back, by when they are ready
--   leases                 sorted set: jobs that are taken, by when their lease runs out
--   dead                   stream: jobs that nobody tries any more
--   job:<execution>        hash: tenant, priority, state (waiting, taken, dead), entry, deliveries, worker, reason
--   jobs, jobs:<t>         sorted sets: jobs that are not dead, in the order they were pushed
--   count                  hash: how many of each state there are, of all tenants and of each
local prefix = KEYS[1]
local GROUP = 'workers'

-- Milliseconds since 1970 by the server's clock, which is the same for all workers.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function job_key(execution) return prefix .. 'job:' .. execution end
local function turns_key(priority) return prefix .. 'turns:' .. priority end
local function stream_key(priority, tenant) return prefix .. 'stream:' .. priority .. ':' .. tenant end
local function front_key(priority, tenant) return prefix .. 'front:' .. priority .. ':' .. tenant end

local function read_job(execution)
  local values = redis.call('HMGET', job_key(execution), 'tenant', 'priority', 'state', 'entry', 'deliveries', 'worker', 'reason', 'grave')
  if not values[1] then return nil end
  return {
    tenant = values[1], priority = values[2], state = values[3], entry = values[4], deliveries = tonumber(values[5]),
    worker = values[6] or '', reason = values[7] or '', grave = values[8],
  }
end

local function count(state, tenant, by)
  for _, field in ipairs({state, state .. ':' .. tenant}) do
    if redis.call('HINCRBY', prefix .. 'count', field, by) == 0 then redis.call('HDEL', prefix .. 'count', field) end
  end
end

local function change_state(execution, job, state)
  count(job.state, job.tenant, -1)
  count(state, job.tenant, 1)
  redis.call('HSET', job_key(execution), 'state', state)
  job.state = state
end

-- A tenant that had nothing comes last in turn.
local function activate(priority, tenant)
  local key = turns_key(priority)
  if not redis.call('ZSCORE', key, tenant) then redis.call('ZADD', key, redis.call('INCR', prefix .. 'turn'), tenant) end
end

local function append(execution, tenant, priority)
  local stream = stream_key(priority, tenant)
  if redis.call('EXISTS', stream) == 0 then redis.call('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM') end
  local number = redis.call('INCR', prefix .. 'sequence')
  redis.call('XADD', stream, number .. '-0', 'execution', execution)
  redis.call('DEL', job_key(execution))
  redis.call('HSET', job_key(execution), 'tenant', tenant, 'priority', priority, 'state', 'waiting', 'entry', number .. '-0', 'deliveries', 0)
  count('waiting', tenant, 1)
  redis.call('ZADD', prefix .. 'jobs', number, execution)
  redis.call('ZADD', prefix .. 'jobs:' .. tenant, number, execution)
  activate(priority, tenant)
end

-- In front of its tenant's others, ready now.
local function give_back(execution, job)
  redis.call('ZADD', front_key(job.priority, job.tenant), string.match(job.entry, '^%d+'), execution)
  activate(job.priority, job.tenant)
end

local function release(execution, job)
  redis.call('ZREM', prefix .. 'leases', execution)
  redis.call('HDEL', job_key(execution), 'worker')
  change_state(execution, job, 'waiting')
end

-- Out of everything that leads to a worker.
local function withdraw(execution, job)
  redis.call('ZREM', prefix .. 'leases', execution)
  redis.call('ZREM', prefix .. 'later', execution)
  redis.call('ZREM', front_key(job.priority, job.tenant), execution)
  redis.call('ZREM', prefix .. 'jobs', execution)
  redis.call('ZREM', prefix .. 'jobs:' .. job.tenant, execution)
  local stream = stream_key(job.priority, job.tenant)
  redis.call('XACK', stream, GROUP, job.entry)
  redis.call('XDEL', stream, job.entry)
end

local function forget(execution, job)
  if job.state == 'dead' then redis.call('XDEL', prefix .. 'dead', job.grave) else withdraw(execution, job) end
  count(job.state, job.tenant, -1)
  redis.call('DEL', job_key(execution))
end

