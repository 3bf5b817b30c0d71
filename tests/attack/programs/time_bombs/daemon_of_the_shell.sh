# tries: leaves jobs of the shell that have nothing to do with it any more
# stopped by: process_1

nohup setsid sleep 1000 &
(trap '' TERM HUP INT; sleep 1000) &
disown -a
echo DONE
