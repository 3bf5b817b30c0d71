# tries: connects to the interface of the service that runs it
# stopped by: network_namespace
# like: CVE-2024-29021

import urllib.request, urllib.error
for url in (f"http://127.0.0.1:{FACTS.api_port}/health", f"http://localhost:{FACTS.api_port}/v1/pool"):
    try:
        got(urllib.request.urlopen(url, timeout=5).read(100))
    except urllib.error.HTTPError as error:
        got("answered", error.code)
    except OSError:
        pass
