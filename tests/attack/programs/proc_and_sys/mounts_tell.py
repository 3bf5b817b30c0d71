# tries: reads from the list of mounts where others keep their data
# stopped by: mount_namespace

text = open("/proc/self/mountinfo").read() + open("/proc/mounts").read()
for word in (FACTS.folder, "fumehood-attack", "/var/lib/docker", "/run/secrets", "kubelet"):
    if word in text:
        got(word)
