# tries: learns which ports of the host are in use by taking them
# stopped by: network_namespace

import socket
for port in (FACTS.port, FACTS.api_port):
    with socket.socket(socket.AF_INET) as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError as error:
            got(port, error.strerror)
