-- ARGV: execution.
local job = read_job(ARGV[1])
if not job or job.state ~= 'dead' then return 0 end
forget(ARGV[1], job)
append(ARGV[1], job.tenant, job.priority)
return 1
