-- ARGV: what, worker, execution, entry, deliveries, and milliseconds (renew, later) or a reason (bury). 0 when it is not this taking of this worker's.
local what, worker, execution = ARGV[1], ARGV[2], ARGV[3]
local job = read_job(execution)
if not job or job.state ~= 'taken' or job.worker ~= worker or job.entry ~= ARGV[4] or job.deliveries ~= tonumber(ARGV[5]) then return 0 end

if what == 'renew' then
  redis.call('ZADD', prefix .. 'leases', now() + ARGV[6], execution)
elseif what == 'done' then
  forget(execution, job)
elseif what == 'later' then
  release(execution, job)
  if tonumber(ARGV[6]) > 0 then
    redis.call('ZADD', prefix .. 'later', now() + ARGV[6], execution)
  else
    give_back(execution, job)
  end
elseif what == 'bury' then
  withdraw(execution, job)
  local grave = redis.call('XADD', prefix .. 'dead', '*', 'execution', execution, 'tenant', job.tenant, 'reason', ARGV[6])
  change_state(execution, job, 'dead')
  redis.call('HDEL', job_key(execution), 'worker')
  redis.call('HSET', job_key(execution), 'reason', ARGV[6], 'grave', grave)
else
  return redis.error_reply('unknown order ' .. what)
end
return 1
