# tries: leaves by a proxy that the environment or the machine offers
# stopped by: network_namespace, environment
# outside: true

import urllib.request
if urllib.request.getproxies():
    got("a proxy", urllib.request.getproxies())
for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
    if os.environ.get(name):
        got(name, os.environ[name])
attempt("a page", lambda: urllib.request.urlopen("http://192.0.2.1/", timeout=2))
