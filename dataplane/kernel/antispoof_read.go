//go:build linux

package kernel

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// read returns the table. Elements that no plan has are zero.
func (s antispoofs) read() (dataplane.Antispoof, error) {
	o := dataplane.Antispoof{Table: s.owner.Antispoof, Seen: damaged}
	holds, err := s.tableHolds(s.owner.Antispoof)
	if err != nil {
		return o, err
	}
	msgs, err := s.nft(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, unix.NFTA_RULE_TABLE, o.Table)
	if err != nil {
		return o, err
	}
	intact, place := holds >= 0 && len(msgs) > 0, map[string]int{}
	for i, m := range msgs {
		said, chain := "", ""
		for t, v := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
			switch t {
			case unix.NFTA_RULE_USERDATA:
				said, _ = userdata.GetString(v, userdata.TypeComment)
			case unix.NFTA_RULE_CHAIN:
				chain = netlink.Text(v)
			}
		}
		var fingerprint string
		place[chain]++
		_, err := fmt.Sscanf(said, antispoofComment(place[chain], len(msgs), holds, "")+"%s", &fingerprint)
		intact = intact && err == nil && (i == 0 || fingerprint == o.Seen)
		o.Seen = fingerprint
	}
	for name := range place {
		ok, err := s.hooked(name)
		if err != nil {
			return o, netlink.OrGone(err)
		}
		intact = intact && ok
	}
	if !intact {
		o.Seen = damaged
		return o, nil
	}
	return o, s.readSets(&o)
}

// hooked reports whether a chain is hooked as planned, and accepts what no rule drops.
func (s antispoofs) hooked(name string) (bool, error) {
	hooked, accepts, err := s.tableChain(s.owner.Antispoof, name)
	want, _ := dataplane.AntispoofHook(name)
	return accepts && hooked == (want != ""), err
}

// readSets reads the elements of the sets. A set that does not exist has none.
func (s antispoofs) readSets(o *dataplane.Antispoof) error {
	read := func(name string) ([][]byte, error) {
		msgs, err := s.nft(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, unix.NFTA_SET_ELEM_LIST_TABLE, o.Table, unix.NFTA_SET_ELEM_LIST_SET, name)
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
	msgs, err := read(dataplane.AntispoofSetClusters)
	if err != nil {
		return err
	}
	for _, c := range readClusters(msgs) {
		o.Clusters = append(o.Clusters, c.ClusterNet)
	}
	msgs, err = read(dataplane.AntispoofSetInner)
	o.Inner = readInner(msgs)
	return err
}

// readInner returns the elements of the set "inner", sorted.
func readInner(msgs [][]byte) (out []dataplane.InnerSource) {
	for _, m := range msgs {
		for t, list := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
			if t != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				continue
			}
			for _, elem := range netlink.Attrs(list) {
				out = append(out, readInnerSource(elem))
			}
		}
	}
	slices.SortFunc(out, dataplane.InnerSource.Compare)
	return out
}

// readInnerSource returns an element of the set "inner"; the zero InnerSource if it is none that a
// plan can have.
func readInnerSource(elem []byte) dataplane.InnerSource {
	for t, v := range netlink.Attrs(elem) {
		for _, key := range netlink.Attrs(v) {
			if t != unix.NFTA_SET_ELEM_KEY || len(key) != 12 {
				continue
			}
			ones, _ := net.IPMask(key[8:]).Size()
			n := netip.PrefixFrom(netip.AddrFrom4([4]byte(key[4:8])), ones)
			if ones > 0 && n == n.Masked() {
				return dataplane.InnerSource{Outer: netip.AddrFrom4([4]byte(key[:4])), Net: n}
			}
		}
	}
	return dataplane.InnerSource{}
}
