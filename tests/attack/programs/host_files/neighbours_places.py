# tries: opens the files of the neighbour by the paths that they have there
# stopped by: mount_namespace

for place in FACTS.neighbour.places:
    attempt(f"read {place}", read, place)
