# tries: moves pages of memory between nodes, its own and those of others
# stopped by: seccomp

for name, arguments in (("migrate_pages", (0, 1, None, None)), ("move_pages", (0, 0, None, None, None, 0))):
    if what := passes(name, *arguments):
        got(name, what)
