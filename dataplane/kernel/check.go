//go:build linux

package kernel

import (
	"errors"
	"fmt"

	"subctl/dataplane/kernel/netlink"

	"golang.org/x/sys/unix"
)

// Check returns an error if the kernel lacks something without which no plan can be applied:
// next hop objects, which Linux has since 5.3. It changes nothing: a kernel without next hop
// objects refuses to list them.
func Check() error {
	c, err := netlink.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Dump(unix.NETLINK_ROUTE, unix.RTM_GETNEXTHOP, make([]byte, unix.SizeofNhmsg))
	switch {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		return errors.New("this node's kernel has no next hop objects: Linux 5.3 or newer is needed")
	case err != nil:
		return fmt.Errorf("listing next hops: %w", err)
	}
	return nil
}
