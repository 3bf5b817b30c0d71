-- ARGV: worker. All that it has is ready again; how many there were.
local given = 0
-- Whatever is taken has a lease; there are as many as all workers have places.
for _, execution in ipairs(redis.call('ZRANGE', prefix .. 'leases', 0, -1)) do
  local job = read_job(execution)
  if job and job.state == 'taken' and job.worker == ARGV[1] then
    release(execution, job)
    give_back(execution, job)
    given = given + 1
  end
end
return given
