//go:build linux

package kernel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// FeatureSet is what kernels differ in.
type FeatureSet struct {
	// Nexthops says that routes can point at next hop objects (Linux 5.3). Without,
	// no Route can be applied.
	Nexthops bool
	// ResilientGroups says that next hop groups can have buckets (Linux 5.13).
	ResilientGroups bool
	// Sets says that there are ipsets.
	Sets bool
}

// Features asks the kernel what it can do. It changes nothing: it lists what each
// feature would have made, and a kernel without it does not know the question.
func Features() (f FeatureSet, err error) {
	c, err := dial()
	if err != nil {
		return f, err
	}
	defer c.close()
	known := func(err error) bool { return !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) }
	var errs []error
	ask := func(what string, answer *bool, family, typ int, payload []byte) {
		_, err := c.dump(family, typ, payload)
		*answer = err == nil
		if err != nil && known(err) {
			errs = append(errs, fmt.Errorf("asking for %s: %w", what, err))
		}
	}
	ask("next hops", &f.Nexthops, unix.NETLINK_ROUTE, unix.RTM_GETNEXTHOP, nhmsg(unix.AF_UNSPEC, 0))
	ask("resilient groups", &f.ResilientGroups, unix.NETLINK_ROUTE, unix.RTM_GETNEXTHOPBUCKET, nhmsg(unix.AF_UNSPEC, 0))
	ask("sets", &f.Sets, unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_IPSET<<8|nl.IPSET_CMD_LIST, askNames())
	return f, errors.Join(errs...)
}
