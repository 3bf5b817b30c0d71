# tries: finds credentials where programs keep them for their users
# stopped by: mount_namespace

for home in ("/root", "/home/sandbox", os.path.expanduser("~"), "/home", "/var/root"):
    for name in (".aws/credentials", ".ssh/id_rsa", ".ssh/id_ed25519", ".docker/config.json", ".kube/config", ".netrc", ".git-credentials", ".npmrc", ".pypirc", ".config/gcloud/credentials.db", ".azure/accessTokens.json", ".bash_history", ".pgpass", ".vault-token"):
        attempt(f"read {home}/{name}", read, f"{home}/{name}", 16)
for path in ("/etc/kubernetes", "/var/run/secrets/kubernetes.io", "/etc/docker", "/etc/ssl/private", "/etc/letsencrypt", "/etc/krb5.keytab", "/etc/fumehood", "/etc/NetworkManager"):
    if os.path.exists(path):
        got(path)
