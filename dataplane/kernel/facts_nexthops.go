//go:build linux

package kernel

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"

	"subctl/dataplane/kernel/netlink"

	"golang.org/x/sys/unix"
)

// rtmGetNexthopBucket is RTM_GETNEXTHOPBUCKET of linux/rtnetlink.h, which x/sys/unix does not have.
// Linux 5.13 has it and resilient groups.
const rtmGetNexthopBucket = 118

// resilientGroups reports whether the kernel has resilient next hop groups: whether it knows the
// message, in which the bucket is missing (EINVAL).
var resilientGroups = sync.OnceValue(func() bool {
	c, err := netlink.Dial()
	if err != nil {
		return false
	}
	defer c.Close()
	_, err = c.Request(unix.NETLINK_ROUTE, rtmGetNexthopBucket, 0, make([]byte, unix.SizeofNhmsg))
	return errors.Is(err, unix.EINVAL)
})

// noNexthops reports that the kernel has no next hop objects.
var noNexthops = sync.OnceValue(func() bool {
	c, err := netlink.Dial()
	if err != nil {
		return false
	}
	defer c.Close()
	_, err = c.Request(unix.NETLINK_ROUTE, unix.RTM_GETNEXTHOP, 0, make([]byte, unix.SizeofNhmsg))
	return errors.Is(err, unix.EOPNOTSUPP)
})

// hashPolicyFile has the number of the fields of packets by which the kernel chooses among several
// next hops.
const hashPolicyFile = "/proc/sys/net/ipv4/fib_multipath_hash_policy"

// hashPolicy returns that number; nil if it cannot be read.
func hashPolicy() *int {
	text, err := os.ReadFile(hashPolicyFile)
	n, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || bad != nil {
		return nil
	}
	return &n
}
