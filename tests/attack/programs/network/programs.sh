# tries: leaves by the programs of the image that know a way: package managers, shells, tools
# stopped by: network_namespace
# outside: true

attempt "the shell's own" timeout 2 bash -c "exec 3<>/dev/tcp/192.0.2.1/80"
attempt "the shell's own to the host" timeout 2 bash -c "exec 3<>/dev/tcp/127.0.0.1/$port"
attempt "curl" timeout 2 curl -s "http://127.0.0.1:$port/"
attempt "wget" timeout 2 wget -q -O /dev/null "http://127.0.0.1:$port/"
attempt "ssh" timeout 2 ssh -o BatchMode=yes -p "$port" 127.0.0.1 true
attempt "ping" timeout 2 ping -c 1 -W 1 192.0.2.1
attempt "openssl" timeout 2 openssl s_client -connect "127.0.0.1:$port" </dev/null
attempt "a namespace of the host" ip netns exec host true
attempt "a link" ip link add dummy0 type dummy
