//go:build linux

package kernel

import (
	"net/netip"
	"strings"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// read returns the table. If it holds anything that a plan does not hold, Local is the zero
// Prefix, which no plan has.
func (s sources) read() (dataplane.Sources, error) {
	o := dataplane.Sources{Table: s.owner.NFTable}
	blank := dataplane.Sources{Table: s.owner.NFTable, Local: []netip.Prefix{{}}}
	intact, err := s.intact()
	if err != nil {
		return o, err
	}
	if !intact {
		return blank, nil
	}
	msgs, err := s.nft(family4, unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, unix.NFTA_RULE_TABLE, o.Table)
	if err != nil {
		return o, err
	}
	for i, m := range msgs {
		said := ""
		for t, v := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
			if t == unix.NFTA_RULE_USERDATA {
				said, _ = userdata.GetString(v, userdata.TypeComment)
			}
		}
		p, err := netip.ParsePrefix(strings.TrimPrefix(said, [...]string{"from ", "to "}[i%2]))
		switch {
		case err != nil:
			return blank, nil
		case i%2 == 0:
			o.Local = append(o.Local, p)
		case p != o.Local[i/2]:
			return blank, nil
		}
	}
	if len(msgs)%2 != 0 {
		return blank, nil
	}
	msgs, err = s.nft(family4, unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, unix.NFTA_SET_ELEM_LIST_TABLE, o.Table,
		unix.NFTA_SET_ELEM_LIST_SET, sourcesSet)
	o.Remote = readNets(msgs)
	return o, err
}

// intact reports whether the table holds our set and chain, and nothing else.
func (s sources) intact() (bool, error) {
	holds, err := s.tableHolds(family4, s.owner.NFTable)
	if err != nil || holds != sourcesHolds {
		return false, err
	}
	hooked, accepts, err := s.tableChain(family4, s.owner.NFTable, sourcesChain)
	return hooked && accepts, netlink.OrGone(err)
}
