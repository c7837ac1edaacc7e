//go:build linux

package kernel

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"subctl/dataplane"
)

var _ dataplane.DropCounter = (*Host)(nil)

// Drops implements dataplane.DropCounter. Linux counts since version 5.7.
func (h *Host) Drops() (map[string]uint64, error) { return h.nft.Drops() }

// DropReasons implements dataplane.DropCounter.
func (h *Host) DropReasons() (map[string]uint64, error) {
	reasons, err := h.nft.DropReasons()
	if err != nil || h.owner.Name != dataplane.RouteOwner.Name {
		return reasons, err
	}
	// one agent of the node, as the counter is the node's
	n, err := reversePathDrops()
	if err != nil {
		return nil, err
	}
	reasons[dataplane.DropReversePath] = n
	return reasons, nil
}

// netstat has counters of the network namespace: lines in pairs, the names and the values.
const netstat = "/proc/thread-self/net/netstat"

// reversePathDrops returns how many packets the kernel has dropped because of rp_filter.
func reversePathDrops() (uint64, error) {
	text, err := os.ReadFile(netstat)
	if err != nil {
		return 0, fmt.Errorf("reading what rp_filter has dropped: %w", err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if i := slices.Index(names, "IPReversePathFilter"); i >= 0 && i < len(fields) && fields[0] == names[0] {
			return strconv.ParseUint(fields[i], 10, 64)
		}
		names = fields
	}
	return 0, nil // a kernel without the counter
}
