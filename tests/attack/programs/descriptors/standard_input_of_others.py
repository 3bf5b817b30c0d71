# tries: reads what was meant for somebody else from its standard input, and writes into it
# stopped by: descriptors

attempt("wrote into standard input", os.write, 0, b"x")
for secret in secrets_in(sys.stdin.read()):
    got("in standard input", secret)
