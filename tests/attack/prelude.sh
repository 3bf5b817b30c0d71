FACTS_AS_TEXT
got() { printf 'GOT %s\n' "$*" | tr -d '\r'; }
cannot() { printf 'CANNOT %s\n' "$*"; exit 0; }
# Runs a command whose success is a catch.
attempt() { what=$1; shift; if "$@" >/dev/null 2>&1; then got "$what"; fi; }
done_() { echo DONE; }

