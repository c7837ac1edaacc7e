//go:build linux

package iptables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// sets are ipsets. The netlink library's functions are not used: they list all sets with
// all members (the sets of other programs have hundreds of thousands), log what they do not
// know, and send one message for each member.
type sets struct{ *Tables }

const (
	setType = "hash:net"
	// setMax is the maximum number of members of a set. The kernel's default of 65,536 is
	// less than 1,000 clusters may have. Memory is allocated as it is needed.
	setMax = 1 << 20
	// setBatch is the maximum number of members in one message: 24 bytes each, and the kernel
	// holds its lock for the whole message.
	setBatch = 1000
)

func (sets) Kinds() []dataplane.Kind { return []dataplane.Kind{dataplane.KindSet} }

func (s sets) List() (out []dataplane.Object, err error) {
	if s.owner.Chains == "" {
		return nil, nil
	}
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		set, err := s.read(name)
		if netlink.Gone(err) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("listing set %s: %w", name, err)
		}
		out = append(out, set)
	}
	return out, nil
}

// names returns the names of the owner's sets.
func (s sets) names() ([]string, error) { return s.named(s.owner.OwnsChain) }

// named returns the names of the sets whose names are ours.
func (s sets) named(ours func(string) bool) (out []string, err error) {
	msgs, err := s.send(nl.IPSET_CMD_LIST, askNames())
	if err != nil {
		return nil, fmt.Errorf("listing sets: %w", err)
	}
	for _, m := range msgs {
		for t, v := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
			if t == nl.IPSET_ATTR_SETNAME && ours(netlink.Text(v)) {
				out = append(out, netlink.Text(v))
			}
		}
	}
	return out, nil
}

// From linux/netfilter/ipset/ip_set.h.
const (
	listNames  = 1 << 1 // IPSET_FLAG_LIST_SETNAME
	listHeader = 1 << 2 // IPSET_FLAG_LIST_HEADER
)

// askNames returns a request for the names of all sets, without their members.
func askNames() []byte { return putFlags(setmsg(""), listNames) }

func putFlags(b []byte, flags uint32) []byte {
	return netlink.PutAttr(b, nl.IPSET_ATTR_FLAGS|unix.NLA_F_NET_BYTEORDER, binary.BigEndian.AppendUint32(nil, flags))
}

// count returns the number of members of a set.
func (s sets) count(name string) (n uint32, err error) {
	msgs, err := s.send(nl.IPSET_CMD_LIST, putFlags(setmsg(name), listHeader))
	if err != nil {
		return 0, fmt.Errorf("counting members of set %s: %w", name, err)
	}
	for _, m := range msgs {
		for t, v := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
			if t != nl.IPSET_ATTR_DATA {
				continue
			}
			for t, v := range netlink.Attrs(v) {
				if t == nl.IPSET_ATTR_ELEMENTS && len(v) == 4 {
					n = binary.BigEndian.Uint32(v)
				}
			}
		}
	}
	return n, nil
}

// read returns a set with its members, sorted. A set of another type is returned with the
// zero Prefix as its only member, which no plan has.
func (s sets) read(name string) (dataplane.Set, error) {
	set := dataplane.Set{Name: name}
	msgs, err := s.send(nl.IPSET_CMD_LIST, setmsg(name)) // a big set comes in several messages
	if err != nil {
		return set, err
	}
	for _, m := range msgs {
		for t, v := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
			switch t {
			case nl.IPSET_ATTR_TYPENAME:
				if netlink.Text(v) != setType {
					set.Members = []netip.Prefix{{}}
					return set, nil
				}
			case nl.IPSET_ATTR_ADT:
				for _, entry := range netlink.Attrs(v) {
					set.Members = append(set.Members, member(entry))
				}
			}
		}
	}
	slices.SortFunc(set.Members, netip.Prefix.Compare)
	return set, nil
}

// member returns the network of an entry, or the zero Prefix if the entry is more than a
// network (nomatch, or about to expire).
func member(entry []byte) netip.Prefix {
	var ip netip.Addr
	bits := -1
	for t, v := range netlink.Attrs(entry) {
		switch t {
		case nl.IPSET_ATTR_IP:
			for _, a := range netlink.Attrs(v) {
				ip = netlink.Addr(a)
			}
		case nl.IPSET_ATTR_CIDR:
			bits = int(v[0])
		case nl.IPSET_ATTR_CADT_FLAGS, nl.IPSET_ATTR_TIMEOUT:
			return netip.Prefix{}
		}
	}
	if bits < 0 {
		bits = ip.BitLen()
	}
	return netip.PrefixFrom(ip, bits)
}

// Put adds and removes single members: a member of both the old and the new set stays in
// the set all the time, so that rules never miss it.
func (s sets) Put(old, want dataplane.Object) error {
	w := want.(dataplane.Set)
	var had []netip.Prefix
	if o, ok := old.(dataplane.Set); ok {
		had = o.Members
	}
	if slices.Contains(had, netip.Prefix{}) { // another type, or settings that a plan cannot express
		if err := s.Delete(old); err != nil {
			return err
		}
		had = nil
	}
	fam := uint8(unix.AF_INET)
	if len(w.Members) > 0 {
		fam = netlink.Family(w.Members[0].Addr())
	}
	if err := s.ensure(w.Name, fam); err != nil {
		return fmt.Errorf("adding set %s: %w", w.Name, err)
	}
	if err := s.change(nl.IPSET_CMD_ADD, w.Name, dataplane.Without(w.Members, had)); err != nil {
		return fmt.Errorf("adding members to set %s: %w", w.Name, err)
	}
	if err := s.change(nl.IPSET_CMD_DEL, w.Name, dataplane.Without(had, w.Members)); err != nil {
		return fmt.Errorf("removing members of set %s: %w", w.Name, err)
	}
	return nil
}

// ensure creates an empty set, if there is none of this name and type.
func (s sets) ensure(name string, family uint8) error {
	b := netlink.PutString(setmsg(name), nl.IPSET_ATTR_TYPENAME, setType)
	b = netlink.PutAttr(b, nl.IPSET_ATTR_REVISION, []byte{0})
	b = netlink.PutAttr(b, nl.IPSET_ATTR_FAMILY, []byte{family})
	limit := netlink.PutAttr(nil, nl.IPSET_ATTR_MAXELEM|unix.NLA_F_NET_BYTEORDER,
		binary.BigEndian.AppendUint32(nil, setMax))
	_, err := s.send(nl.IPSET_CMD_CREATE, netlink.PutAttr(b, nl.IPSET_ATTR_DATA|unix.NLA_F_NESTED, limit))
	if errors.Is(err, unix.EEXIST) {
		return nil // other limits than ours do not matter
	}
	return err
}

// change adds or removes members. It is no error if they are there, or gone, already.
func (s sets) change(cmd int, name string, members []netip.Prefix) error {
	for batch := range slices.Chunk(members, setBatch) {
		var entries []byte
		for i, m := range batch {
			// ip_set_core.c: IPADDR_IPV4 is 1, IPADDR_IPV6 is 2.
			kind := uint16(nl.IPSET_ATTR_IPADDR_IPV4)
			if !m.Addr().Is4() {
				kind = nl.IPSET_ATTR_IPADDR_IPV6
			}
			ip := netlink.PutAttr(nil, kind|unix.NLA_F_NET_BYTEORDER, m.Addr().AsSlice())
			e := netlink.PutAttr(nil, nl.IPSET_ATTR_IP|unix.NLA_F_NESTED, ip)
			e = netlink.PutAttr(e, nl.IPSET_ATTR_CIDR, []byte{byte(m.Bits())})
			// Each of several entries must have a number, by which the kernel reports the bad one.
			e = netlink.PutAttr(e, nl.IPSET_ATTR_LINENO|unix.NLA_F_NET_BYTEORDER,
				binary.BigEndian.AppendUint32(nil, uint32(i+1)))
			entries = netlink.PutAttr(entries, nl.IPSET_ATTR_DATA|unix.NLA_F_NESTED, e)
		}
		b := netlink.PutAttr(setmsg(name), nl.IPSET_ATTR_LINENO|unix.NLA_F_NET_BYTEORDER, make([]byte, 4))
		if _, err := s.send(cmd, netlink.PutAttr(b, nl.IPSET_ATTR_ADT|unix.NLA_F_NESTED, entries)); err != nil {
			return err
		}
	}
	return nil
}

func (s sets) Delete(old dataplane.Object) error {
	name := old.(dataplane.Set).Name
	if _, err := s.send(nl.IPSET_CMD_DESTROY, setmsg(name)); err != nil && !netlink.Gone(err) {
		return fmt.Errorf("removing set %s: %w", name, err)
	}
	return nil
}

// send sends a message without NLM_F_EXCL, so that it is no error to add a member that
// exists, or to remove one that does not.
func (s sets) send(cmd int, b []byte) ([][]byte, error) {
	flags := nl.GetIpsetFlags(cmd) &^ unix.NLM_F_EXCL
	msgs, err := s.conn.Request(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_IPSET<<8|cmd, flags, b)
	var errno unix.Errno
	switch {
	case !errors.As(err, &errno) || errno < nl.IPSET_ERR_PRIVATE:
		return msgs, err
	case errno == nl.IPSET_ERR_TYPE_SPECIFIC: // IPSET_ERR_HASH_FULL, linux/netfilter/ipset/ip_set_hash.h
		return nil, fmt.Errorf("ipset: set is full, at %d members", setMax)
	}
	return nil, fmt.Errorf("ipset: %w", nl.IPSetError(errno))
}

// setmsg returns the beginning of a message about a set, or about all sets if name is empty.
func setmsg(name string) []byte {
	b := netlink.PutAttr(netlink.NetfilterHeader(unix.AF_INET), nl.IPSET_ATTR_PROTOCOL, []byte{nl.IPSET_PROTOCOL})
	if name != "" {
		b = netlink.PutString(b, nl.IPSET_ATTR_SETNAME, name)
	}
	return b
}
