# Boots a real systemd as pid 1 of namespaces of its own, on a throw-away overlay of this machine. Started by tests/hold/booted.py as root in fresh mount, pid, host name, IPC and
# cgroup namespaces; BASE is an empty directory, CHECKOUT and CACHE are bound where the units expect them, CACHE read-only.
# Nothing of the machine is written: files are in memory, kernel settings are not applied (systemd-sysctl is masked), the network is the machine's.
set -euo pipefail
base=$1 checkout=$2 cache=$3
root=$base/root
mount -t tmpfs -o mode=755 tmpfs "$base"
mkdir "$base/upper" "$base/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount --rbind /dev "$root/dev"
mkdir -p "$root/opt/hermeval" "$root/var/cache/hermeval" "$root/etc/systemd/system" "$root/mnt"
mount --bind "$checkout" "$root/opt/hermeval"
mount --bind "$cache" "$root/var/cache/hermeval"
mount -o remount,bind,ro "$root/var/cache/hermeval"
# What would touch the machine, or is of no use here.
for unit in systemd-sysctl systemd-modules-load systemd-udevd systemd-udev-trigger systemd-remount-fs systemd-networkd systemd-resolved systemd-timesyncd systemd-logind \
  systemd-random-seed systemd-binfmt systemd-update-utmp systemd-journal-flush; do
  ln -sf /dev/null "$root/etc/systemd/system/$unit.service"
done
for unit in dev-hugepages dev-mqueue sys-fs-fuse-connections sys-kernel-config sys-kernel-debug sys-kernel-tracing tmp; do
  ln -sf /dev/null "$root/etc/systemd/system/$unit.mount"
done
rm -rf "$root/etc/systemd/system"/*.wants "$root/etc/systemd/system"/*.requires
cd "$root"
pivot_root . mnt
umount -l /mnt
mount --make-rshared / # as systemd does on a machine, and leaves to others in a container: credentials reach a unit by it
exec env -i container=hermeval PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=basic.target --log-target=console --log-level=notice --show-status=0
