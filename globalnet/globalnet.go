// Package globalnet defines the addresses of flows between clusters that use the same
// networks. Every cluster gets a global network, allocated from one range, that is
// unique among all clusters of a broker.
//
// It is pure: it does no I/O, and depends on neither Kubernetes clients nor the kernel.
package globalnet

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"

	"subctl/dataplane"
)

// Defaults, the same as upstream's: 256 clusters with 65,536 addresses each.
const (
	DefaultRange       = "242.0.0.0/8"
	DefaultClusterSize = 65536
)

// Name and keys of the ConfigMap on the broker that records the network of each cluster
// (as upstream 0.18). The value of RangeKey is a JSON string, including quotes; the value
// of ClusterInfoKey is a JSON array of objects with the fields cluster_id and global_cidr.
const (
	ConfigMapName  = "submariner-globalnet-info"
	EnabledKey     = "globalnetEnabled"
	RangeKey       = "globalnetCidrRange"
	ClusterSizeKey = "globalnetClusterSize"
	ClusterInfoKey = "clusterinfo"
)

// Info holds the globalnet settings of a broker.
type Info struct {
	Enabled bool
	Range   netip.Prefix
	// ClusterSize is the default number of addresses of a cluster, a power of two.
	ClusterSize uint
}

// Parse returns the settings for a range in CIDR notation and a default cluster size, which
// it rounds up to a power of two. The range must be IPv4, /27 or larger, and must not overlap
// addresses with a special meaning; the size must be at most half of the range. The error
// contains all mistakes.
func Parse(cidr string, size uint) (Info, error) {
	p, err := parseRange(cidr)
	if err != nil {
		return Info{}, errors.Join(err, CheckSize(size))
	}
	if err := CheckSize(size); err != nil {
		return Info{}, err
	}
	rounded := uint(1) << bits.Len(size-1)
	if half := uint(1) << (p.Addr().BitLen() - p.Bits() - 1); rounded > half {
		return Info{}, fmt.Errorf("globalnet cluster size %d%s is more than half of %s (%d addresses): "+
			"use at most %d, or a larger range", size, roundedTo(size, rounded), p, 2*half, half)
	}
	return Info{Enabled: true, Range: p, ClusterSize: rounded}, nil
}

func roundedTo(size, rounded uint) string {
	if size == rounded {
		return ""
	}
	return fmt.Sprintf(" (rounded up to %d)", rounded)
}

// The least and the most addresses of a cluster. The least leaves some besides the shared addresses
// of egress, of which there are 8 by default. The most is half of all IPv4 addresses.
const (
	MinSize = 16
	maxSize = 1 << 31
)

// CheckSize returns an error if a cluster cannot have that number of addresses.
func CheckSize(size uint) error {
	switch {
	case size < MinSize:
		return fmt.Errorf(
			"globalnet cluster size %d leaves too few addresses: use a power of two of at least %d, such as 65536",
			size, MinSize)
	case size > maxSize:
		return fmt.Errorf(
			"globalnet cluster size %d is more than half of all addresses: use a power of two, such as 65536", size)
	}
	return nil
}

// parseRange parses a range, and rejects addresses that are not unicast, that are local to a node
// or a link, or that subctl uses.
func parseRange(cidr string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(strings.TrimSpace(cidr))
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("globalnet range %q is not a network: write it like %s", cidr, DefaultRange)
	}
	if !p.Addr().Is4() {
		return netip.Prefix{}, fmt.Errorf("globalnet range %s is not IPv4: write it like %s", p, DefaultRange)
	}
	if p.Masked() != p {
		return netip.Prefix{}, fmt.Errorf("globalnet range %s has host bits set: did you mean %s?", p, p.Masked())
	}
	if p.Bits() > 27 {
		return netip.Prefix{}, fmt.Errorf("globalnet range %s is too small for two clusters: use a /27 or larger", p)
	}
	if no := special(p); no != "" {
		return netip.Prefix{}, fmt.Errorf("globalnet range %s overlaps %s: use another range, such as %s", p, no,
			DefaultRange)
	}
	return p, nil
}

// special describes the addresses with a special meaning that p overlaps; empty if there are none.
func special(p netip.Prefix) string {
	for _, no := range unusable {
		if no.net.Overlaps(p) {
			return fmt.Sprintf("the %s addresses %s", no.what, no.net)
		}
	}
	for _, ours := range dataplane.DeviceNets {
		if ours.Net.Overlaps(p) {
			return fmt.Sprintf("the addresses %s of our %s", ours.Net, ours.Devices)
		}
	}
	return ""
}

var unusable = []struct {
	what string
	net  netip.Prefix
}{
	{"unspecified", netip.MustParsePrefix("0.0.0.0/8")},
	{"loopback", netip.MustParsePrefix("127.0.0.0/8")},
	{"link-local", netip.MustParsePrefix("169.254.0.0/16")},
	{"multicast", netip.MustParsePrefix("224.0.0.0/4")},
	{"broadcast", netip.MustParsePrefix("255.255.255.255/32")},
}
