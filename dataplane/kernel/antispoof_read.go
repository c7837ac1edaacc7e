//go:build linux

package kernel

import (
	"iter"
	"net"
	"net/netip"
	"slices"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// read returns the table. Elements that no plan has are zero.
func (s antispoofs) read() (dataplane.Antispoof, error) {
	o := dataplane.Antispoof{Table: s.owner.Antispoof}
	var err error
	o.Seen, err = s.tableFingerprint(family4, o.Table, func(chain string) bool {
		hook, _ := dataplane.AntispoofHook(chain)
		return hook != ""
	})
	if netlink.Gone(err) {
		if has, err := s.has(family6, o.Table); has || err != nil {
			return dataplane.Antispoof{Table: o.Table, Seen: damaged}, err
		}
	}
	if err != nil || o.Seen == damaged {
		return o, err
	}
	whole, err := s.wholeIPv6(o)
	if err != nil {
		return o, err
	}
	if !whole {
		o.Seen += lacksIPv6
	}
	err = s.readSets(&o)
	return o, err
}

// readSets reads the elements of the sets. A set that does not exist has none.
func (s antispoofs) readSets(o *dataplane.Antispoof) error {
	read := func(name string) ([][]byte, error) {
		msgs, err := s.nft(family4, unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, unix.NFTA_SET_ELEM_LIST_TABLE, o.Table,
			unix.NFTA_SET_ELEM_LIST_SET, name)
		if netlink.Gone(err) {
			return nil, nil
		}
		return msgs, err
	}
	for name, nets := range map[string]*[]netip.Prefix{
		dataplane.AntispoofSetEnds: &o.Ends, dataplane.AntispoofSetRemote: &o.Remote, dataplane.AntispoofSetOwn: &o.Own,
	} {
		msgs, err := read(name)
		if err != nil {
			return err
		}
		*nets = readNets(msgs)
	}
	msgs, err := read(dataplane.AntispoofSetMasked)
	if err != nil {
		return err
	}
	if masked := readMasked(msgs); len(masked) > 0 {
		o.Remote = append(o.Remote, masked...)
		slices.SortFunc(o.Remote, netip.Prefix.Compare)
	}
	msgs, err = read(dataplane.AntispoofSetClusters)
	if err != nil {
		return err
	}
	for _, c := range readClusters(msgs) {
		o.Clusters = append(o.Clusters, c.ClusterNet)
	}
	if msgs, err = read(dataplane.AntispoofSetEcho); err != nil {
		return err
	}
	o.Echoing = readEcho(msgs)
	if msgs, err = read(dataplane.AntispoofSetPeers); err != nil {
		return err
	}
	behind, err := read(dataplane.AntispoofSetBehind)
	if err != nil {
		return err
	}
	o.Behind = readPeers(msgs, behind)
	msgs, err = read(dataplane.AntispoofSetInner)
	o.Inner = readInner(msgs)
	return err
}

// readInner returns the elements of the set "inner", sorted. An element that no plan can have is
// zero.
func readInner(msgs [][]byte) (out []dataplane.InnerSource) {
	for key := range keys(msgs) {
		var s dataplane.InnerSource
		if len(key) == 12 {
			if n := maskedNet(key[4:]); n.IsValid() {
				s = dataplane.InnerSource{Outer: netip.AddrFrom4([4]byte(key[:4])), Net: n}
			}
		}
		out = append(out, s)
	}
	slices.SortFunc(out, dataplane.InnerSource.Compare)
	return out
}

// readEcho returns the elements of the set "echo", sorted. An element that no plan can have is
// zero.
func readEcho(msgs [][]byte) (out []netip.Addr) {
	for key := range keys(msgs) {
		var ip netip.Addr
		if len(key) == 8 && [4]byte(key[:4]) == [4]byte(key[4:]) {
			ip = netip.AddrFrom4([4]byte(key[:4]))
		}
		out = append(out, ip)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// readMasked returns the elements of the set "masked". An element that no plan can have is zero.
func readMasked(msgs [][]byte) (out []netip.Prefix) {
	for key := range keys(msgs) {
		out = append(out, maskedNet(key))
	}
	return out
}

// maskedNet returns the network of an address and a mask; the zero Prefix if no plan can have it.
func maskedNet(key []byte) netip.Prefix {
	if len(key) != 8 {
		return netip.Prefix{}
	}
	ones, _ := net.IPMask(key[4:]).Size()
	if n := netip.PrefixFrom(netip.AddrFrom4([4]byte(key[:4])), ones); ones > 0 && n == n.Masked() {
		return n
	}
	return netip.Prefix{}
}

// keys returns the keys of the elements of a set; an element without one has an empty key.
func keys(msgs [][]byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, m := range msgs {
			for t, list := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
				if t != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
					continue
				}
				for _, elem := range netlink.Attrs(list) {
					if !yield(keyOf(elem)) {
						return
					}
				}
			}
		}
	}
}

// keyOf returns the key of an element.
func keyOf(elem []byte) []byte {
	for t, v := range netlink.Attrs(elem) {
		if t != unix.NFTA_SET_ELEM_KEY {
			continue
		}
		for _, key := range netlink.Attrs(v) {
			return key
		}
	}
	return nil
}
