-- 1 when there may be something to take.
for priority = 0, 2 do
  if redis.call('EXISTS', turns_key(priority)) == 1 then return 1 end
end
for _, key in ipairs({'later', 'leases'}) do
  if redis.call('ZRANGEBYSCORE', prefix .. key, '-inf', now(), 'LIMIT', 0, 1)[1] then return 1 end
end
return 0
