# tries: changes interrupts, buses and caches of the machine
# stopped by: covered_proc, user_namespace

import glob
for path in ["/proc/irq/default_smp_affinity", "/proc/mtrr", "/proc/bus/pci", "/proc/acpi/wakeup", "/proc/driver", "/proc/scsi/scsi", *glob.glob("/proc/irq/*/smp_affinity")[:4], *glob.glob("/proc/bus/pci/*/*")[:4]]:
    if os.path.isfile(path):
        attempt(f"opened {path} to write", lambda: os.open(path, os.O_WRONLY))
