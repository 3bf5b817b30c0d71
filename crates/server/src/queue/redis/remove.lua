-- ARGV: execution.
local job = read_job(ARGV[1])
if not job then return 0 end
forget(ARGV[1], job)
return 1
