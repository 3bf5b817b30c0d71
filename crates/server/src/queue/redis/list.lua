-- ARGV: `live` or `dead`, tenant or nothing, how many at most. Returns execution, tenant, priority, deliveries, worker, reason of each.
local tenant, most = ARGV[2], tonumber(ARGV[3])
local entries = {}
local function add(execution)
  local job = read_job(execution)
  if job then table.insert(entries, {execution, job.tenant, job.priority, tostring(job.deliveries), job.worker, job.reason}) end
end

if ARGV[1] == 'live' then
  local key = prefix .. 'jobs'
  if tenant ~= '' then key = key .. ':' .. tenant end
  if most > 0 then
    for _, execution in ipairs(redis.call('ZRANGE', key, 0, most - 1)) do add(execution) end
  end
  return entries
end

local last = '+'
while #entries < most do
  local graves = redis.call('XREVRANGE', prefix .. 'dead', last, '-', 'COUNT', 200)
  for _, grave in ipairs(graves) do
    if #entries < most and (tenant == '' or grave[2][4] == tenant) then add(grave[2][2]) end
  end
  if #graves < 200 then break end
  last = '(' .. graves[#graves][1]
end
return entries
