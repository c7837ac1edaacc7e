#!/bin/sh
# The first process of the guest. Each line of /tests specifies a folder with a program "test", and regular expressions of the
# benchmarks (- for none) and of the tests to run. The output goes to the second serial port. A line
# "testkernel: exit STATUS FOLDER" follows the output of each program; lines "testkernel: row ..." at the end are the results of benchmarks.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
export PATH HOME
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup /sys/fs/cgroup
mkdir -p /dev/net && mknod /dev/net/tun c 10 200 # as udev does; opening the device loads the module
ln -s /proc/self/fd /dev/fd
. /environment

{
	stty raw # lines end as they were written
	echo "testkernel: up after $(cut -d' ' -f1 /proc/uptime) s, $(uname -r), $(nproc) processors"
	while read -r dir bench run; do
		cd "$dir" || continue
		./test -test.v -test.count=1 -test.timeout=20m -test.benchtime=1x -test.bench="${bench#-}" -test.run="$run" 2>&1 </dev/null
		echo "testkernel: exit $? $dir"
	done </tests
	[ ! -e "$SUBCTL_BENCH" ] || sed 's/^/testkernel: row /' "$SUBCTL_BENCH"
} >/dev/ttyS1 <>/dev/ttyS1 # closing it waits until all is written

echo b >/proc/sysrq-trigger # reset; QEMU is told to end there
