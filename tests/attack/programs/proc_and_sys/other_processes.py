# tries: sees processes of the host or of other sandboxes
# stopped by: pid_namespace

strangers = sorted(others())
if strangers:
    names = [read(f"/proc/{pid}/comm").decode().strip() for pid in strangers[:20] if os.path.exists(f"/proc/{pid}/comm")]
    got(len(strangers), "processes:", names)
