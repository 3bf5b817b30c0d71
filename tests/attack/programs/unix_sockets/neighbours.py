# tries: connects to the socket of a neighbour that has a name and no path
# stopped by: network_namespace, landlock

import socket
with socket.socket(socket.AF_UNIX) as s:
    attempt("connected", s.connect, "\0" + FACTS.neighbour["abstract"])
