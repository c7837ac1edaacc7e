//go:build linux

package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// neighs are the permanent entries of our devices in the ARP and forwarding tables,
// whichever program added them. Entries that the kernel adds or learns by itself (multicast,
// incomplete, stale) are not permanent, and in no plan.
type neighs struct{ *Routing }

const sizeofNdmsg = 12 // struct ndmsg, linux/neighbour.h

func (neighs) Kinds() []dataplane.Kind { return []dataplane.Kind{dataplane.KindNeigh} }

func (s neighs) List() (out []dataplane.Object, err error) {
	devs, err := s.devices.Own()
	if err != nil {
		return nil, err
	}
	for name, index := range devs {
		fdb, err := s.entries(unix.AF_BRIDGE, index, ndmsg(unix.AF_BRIDGE, index, 0, 0))
		if err != nil {
			return nil, fmt.Errorf("listing fdb of %s: %w", name, err)
		}
		// Only here the kernel expects the index in an attribute (neigh_valid_dump_req).
		arp, err := s.entries(unix.AF_INET, index,
			netlink.PutU32(ndmsg(unix.AF_INET, 0, 0, 0), vnl.NDA_IFINDEX, uint32(index)))
		if err != nil {
			return nil, fmt.Errorf("listing neighbours of %s: %w", name, err)
		}
		seen := make(map[string]int, len(fdb))
		for _, e := range fdb {
			if i, twice := seen[string(e.mac)]; twice {
				out[i] = dataplane.FDB{Dev: name, MAC: e.mac.String()} // a frame would go to both
				continue
			}
			seen[string(e.mac)] = len(out)
			f := dataplane.FDB{Dev: name, MAC: e.mac.String(), Dst: e.ip}
			if e.odd {
				f.Dst = netip.Addr{}
			}
			out = append(out, f)
		}
		for _, e := range arp {
			out = append(out, dataplane.Neigh{Dev: name, IP: e.ip, MAC: e.mac.String()})
		}
	}
	return out, nil
}

// entry is one permanent entry. It is odd if it has settings that a plan cannot express.
type entry struct {
	ip  netip.Addr
	mac net.HardwareAddr
	odd bool
}

func (s neighs) entries(family uint8, index int, query []byte) (out []entry, err error) {
	msgs, err := s.conn.Dump(unix.NETLINK_ROUTE, unix.RTM_GETNEIGH, query)
	if netlink.Gone(err) {
		return nil, nil // the device was removed meanwhile
	}
	if err != nil {
		return nil, err
	}
	for _, m := range msgs {
		state := binary.NativeEndian.Uint16(m[8:])
		if m[0] != family || int(netlink.U32(m[4:])) != index || state&vnl.NUD_PERMANENT == 0 {
			continue
		}
		var e entry
		for t, v := range netlink.Attrs(m[sizeofNdmsg:]) {
			switch t {
			case vnl.NDA_DST:
				e.ip = netlink.Addr(v)
			case vnl.NDA_LLADDR:
				e.mac = v
			case vnl.NDA_PORT, vnl.NDA_VNI, vnl.NDA_IFINDEX, vnl.NDA_NH_ID, vnl.NDA_SRC_VNI:
				e.odd = e.odd || family == unix.AF_BRIDGE
			}
		}
		out = append(out, e)
	}
	return out, nil
}

func (s neighs) Put(_, want dataplane.Object) error {
	switch w := want.(type) {
	case dataplane.FDB:
		return s.putFDB(w)
	case dataplane.Neigh:
		if err := s.do(unix.RTM_NEWNEIGH, netlink.Replace, unix.AF_INET, w.Dev, w.MAC, w.IP); err != nil {
			return fmt.Errorf("adding neighbour %v on %s: %w", w.IP, w.Dev, err)
		}
	}
	return nil
}

// putFDB replaces the entry of a MAC. The kernel refuses to replace an entry that may have
// several destinations, such as the entry of the zero MAC (EOPNOTSUPP, vxlan_fdb_update), or
// an entry that uses a next hop: these are removed first.
func (s neighs) putFDB(f dataplane.FDB) error {
	err := s.do(unix.RTM_NEWNEIGH, netlink.Replace, unix.AF_BRIDGE, f.Dev, f.MAC, f.Dst)
	if errors.Is(err, unix.EOPNOTSUPP) {
		if err = s.Delete(f); err == nil {
			err = s.do(unix.RTM_NEWNEIGH, netlink.Create, unix.AF_BRIDGE, f.Dev, f.MAC, f.Dst)
		}
	}
	if err != nil {
		return fmt.Errorf("adding fdb entry %s to %v on %s: %w", f.MAC, f.Dst, f.Dev, err)
	}
	return nil
}

func (s neighs) Delete(old dataplane.Object) error {
	switch o := old.(type) {
	case dataplane.FDB: // without a destination: all entries of the MAC
		if err := netlink.OrGone(s.do(unix.RTM_DELNEIGH, 0, unix.AF_BRIDGE, o.Dev, o.MAC, netip.Addr{})); err != nil {
			return fmt.Errorf("removing fdb entry %s of %s: %w", o.MAC, o.Dev, err)
		}
	case dataplane.Neigh:
		if err := netlink.OrGone(s.do(unix.RTM_DELNEIGH, 0, unix.AF_INET, o.Dev, "", o.IP)); err != nil {
			return fmt.Errorf("removing neighbour %v of %s: %w", o.IP, o.Dev, err)
		}
	}
	return nil
}

func (s neighs) do(typ, flags int, family uint8, dev, mac string, ip netip.Addr) error {
	i, err := s.devices.Index(dev)
	if err != nil {
		return err
	}
	self := uint8(0)
	if family == unix.AF_BRIDGE {
		self = vnl.NTF_SELF // the device's own table, not the table of a bridge above it
	}
	b := ndmsg(family, i, vnl.NUD_PERMANENT, self)
	if ip.IsValid() {
		b = netlink.PutAttr(b, vnl.NDA_DST, ip.AsSlice())
	}
	if mac != "" {
		hw, err := net.ParseMAC(mac)
		if err != nil {
			return err
		}
		b = netlink.PutAttr(b, vnl.NDA_LLADDR, hw)
	}
	return s.conn.Change(typ, flags, b)
}

func ndmsg(family uint8, index int, state uint16, flags uint8) []byte {
	b := binary.NativeEndian.AppendUint32([]byte{family, 0, 0, 0}, uint32(index))
	return append(binary.NativeEndian.AppendUint16(b, state), flags, 0)
}
