-- ARGV: execution, tenant, priority. One that is there already stays as it is.
if redis.call('EXISTS', job_key(ARGV[1])) == 1 then return 0 end
append(ARGV[1], ARGV[2], ARGV[3])
return 1
