# tries: has random numbers that the fork before it has had too
# stopped by: judge
# with: {"result_var": "unused"}

import random, secrets, uuid
unused = None
# The seed that is the same in every fork would give the same first numbers as the one beside it, which runs in another process.
states = {random.random(), random.SystemRandom().random(), secrets.token_hex(8), str(uuid.uuid4()), os.urandom(8).hex()}
if os.fork() == 0:
    child = {random.random(), secrets.token_hex(8), os.urandom(8).hex()}
    os._exit(1 if states & {secrets.token_hex(8)} else 0)
_, status = os.wait()
if status:
    got("the same numbers")
before = random.Random(0).random()
if before in states:
    got("the numbers of a fixed seed")
