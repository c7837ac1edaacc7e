#!/bin/sh
# The first process of the guest. Each line of /tests specifies a folder with a program "test", and regular expressions of the
# benchmarks (- for none) and of the tests to run. The kernel's command line says how many of the first ones ended in an earlier guest. As
# many programs run at once as there are processors. Their output goes to the second serial port, one program after the other, each
# followed by a line "testkernel: exit STATUS FOLDER". Lines "testkernel: row ..." at the end are the results of benchmarks.
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
tail -n +$((ended + 1)) /tests >/left

# once runs the program of the current folder.
once() {
	./test -test.v -test.short -test.count=1 -test.timeout=20m -test.benchtime=1x -test.bench="${bench#-}" -test.run="$run" </dev/null
}

# start runs all programs, with the output in a file "log" and then the status in a file "exit", each in the program's folder.
start() {
	while read -r dir bench run; do
		while [ "$(pgrep -xc test)" -ge "$(nproc)" ]; do sleep 1; done
		(
			cd "$dir" || exit
			once >log 2>&1
			status=$?
			if [ $status != 0 ]; then
				echo "testkernel: status $status: once more"
				once
				status=$?
			fi >>log 2>&1
			echo $status >status && mv status exit
		) &
		until [ -e "$dir/log" ]; do sleep 0.1; done
	done </left
}

# show prints the log of the program in the current folder until the program has ended.
show() {
	at=0 ended=
	until [ -n "$ended" ]; do
		sleep 0.5
		[ ! -e exit ] || ended=yes
		size=$(wc -c <log)
		tail -c +$((at + 1)) log | head -c $((size - at))
		at=$size
	done
}

start &
{
	stty raw # lines end as they were written
	echo "testkernel: up after $(cut -d' ' -f1 /proc/uptime) s, $(uname -r), $(nproc) processors"
	while read -r dir _ _; do
		cd "$dir" || continue
		until [ -e log ]; do sleep 0.5; done
		show
		echo "testkernel: exit $(cat exit) $dir"
	done </left
	[ ! -e "$SUBCTL_BENCH" ] || sed 's/^/testkernel: row /' "$SUBCTL_BENCH"
} >/dev/ttyS1 <>/dev/ttyS1 # closing it waits until all is written

echo b >/proc/sysrq-trigger # reset; QEMU is told to end there
