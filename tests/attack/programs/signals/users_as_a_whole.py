# tries: changes the priority of everything that another user runs
# stopped by: pid_namespace, user_namespace

# 0 would be its own user.
for user in (1, 999, 700000):
    attempt(f"the priority of user {user}", os.setpriority, os.PRIO_USER, user, 5)
