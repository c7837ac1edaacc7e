#!/bin/sh
# The first process of the guest. Each line of /tests is a folder with a program "test", and regular expressions of the
# tests to run and to skip. What they say goes to the second serial port, each followed by a line "testkernel: exit STATUS FOLDER".
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
export PATH HOME
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup /sys/fs/cgroup
mkdir -p /dev/net && mknod /dev/net/tun c 10 200 # udev does it; opening it loads the module
ln -s /proc/self/fd /dev/fd
. /environment

{
	stty raw # lines end as they were written
	echo "testkernel: up after $(cut -d' ' -f1 /proc/uptime) s, $(uname -r), $(nproc) processors"
	while read -r dir run skip; do
		cd "$dir" || continue
		./test -test.v -test.count=1 -test.timeout=10m -test.run="$run" -test.skip="$skip" 2>&1 </dev/null
		echo "testkernel: exit $? $dir"
	done </tests
} >/dev/ttyS1 <>/dev/ttyS1 # closing it waits until all is written

echo b >/proc/sysrq-trigger # reset; QEMU is told to end there
