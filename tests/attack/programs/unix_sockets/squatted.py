# tries: takes the names that services of the host listen on, before they do
# stopped by: network_namespace

import socket
# Taken already means that the names are those of the host.
for name in (FACTS["abstract"], FACTS.neighbour["abstract"]):
    try:
        s = socket.socket(socket.AF_UNIX)
        s.bind("\0" + name)
    except OSError as error:
        got("the name is taken:", name, error.strerror)
