# tries: has the image's own setuid helpers mount something
# stopped by: no_new_privileges, mount_flags, user_namespace

attempt "mounted by mount" mount -t tmpfs none /tmp
attempt "mounted by fusermount" fusermount3 -u /data
attempt "unmounted" umount /proc/sys
attempt "a namespace by unshare" unshare -Ur true
attempt "a namespace by nsenter" nsenter -t 1 -m true
attempt "a sandbox by bwrap" bwrap --bind / / true
attempt "chroot" chroot / true
attempt "a loop device" losetup -f
