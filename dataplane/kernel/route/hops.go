//go:build linux

package route

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"golang.org/x/sys/unix"
)

// rawHop is a next hop that a route has itself, where the kernel has no next hop objects.
type rawHop struct {
	index  int // of the device
	via    netip.Addr
	weight int
}

// rawHops reads RTA_MULTIPATH: for each next hop a struct rtnexthop, of which the length counts its
// attributes, and the weight is one more than it says.
func rawHops(b []byte) (out []rawHop) {
	for len(b) >= unix.SizeofRtNexthop {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofRtNexthop || n > len(b) {
			break
		}
		h := rawHop{weight: int(b[3]) + 1, index: int(binary.NativeEndian.Uint32(b[4:]))}
		for t, v := range netlink.Attrs(b[unix.SizeofRtNexthop:n]) {
			if t == unix.RTA_GATEWAY {
				h.via = netlink.Addr(v)
			}
		}
		out = append(out, h)
		b = b[min(len(b), (n+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
	}
	return out
}

// multipath returns the route r with next hops.
func (s routes) multipath(r dataplane.Route, hops []rawHop) (dataplane.Multipath, error) {
	m := dataplane.Multipath{Table: r.Table, Dst: r.Dst, Src: r.Src, MTU: r.MTU}
	for _, h := range hops {
		dev, err := s.devices.Name(h.index)
		if err != nil {
			return m, fmt.Errorf("finding the device of a route to %v: %w", r.Dst, err)
		}
		m.Hops = append(m.Hops, dataplane.Hop{Via: h.via, Dev: dev, Weight: h.weight})
	}
	slices.SortFunc(m.Hops, dataplane.Hop.Compare)
	return m, nil
}

// putHops adds the next hops of a route to a message: one as attributes of the route, as the kernel
// returns it.
func (s routes) putHops(b []byte, hops []dataplane.Hop) ([]byte, error) {
	var all []byte
	for _, h := range hops {
		if h.Weight < 1 || h.Weight > maxWeight {
			return nil, fmt.Errorf("weight %d of %v is not in 1 to %d", h.Weight, h.Via, maxWeight)
		}
		index, err := s.devices.Index(h.Dev)
		if err != nil {
			return nil, err
		}
		if len(hops) == 1 {
			b = netlink.PutU32(b, unix.RTA_OIF, uint32(index))
			if h.Via.IsValid() {
				b = netlink.PutAttr(b, unix.RTA_GATEWAY, h.Via.AsSlice())
			}
			return b, nil
		}
		var via []byte
		if h.Via.IsValid() {
			via = netlink.PutAttr(nil, unix.RTA_GATEWAY, h.Via.AsSlice())
		}
		all = binary.NativeEndian.AppendUint16(all, uint16(unix.SizeofRtNexthop+len(via)))
		all = append(all, 0, byte(h.Weight-1))
		all = binary.NativeEndian.AppendUint32(all, uint32(index))
		all = append(all, via...)
	}
	return netlink.PutAttr(b, unix.RTA_MULTIPATH, all), nil
}
