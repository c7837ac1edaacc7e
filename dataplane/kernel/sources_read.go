//go:build linux

package kernel

import (
	"net/netip"
	"slices"
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
	var seen []string
	for _, m := range msgs {
		said := ""
		for t, v := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
			if t == unix.NFTA_RULE_USERDATA {
				said, _ = userdata.GetString(v, userdata.TypeComment)
			}
		}
		seen = append(seen, said)
		noteSource(&o, said)
	}
	var planned []string
	for _, r := range o.Rules() {
		planned = append(planned, r.Comment())
	}
	if !slices.Equal(seen, planned) {
		return blank, nil
	}
	msgs, err = s.nft(family4, unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, unix.NFTA_SET_ELEM_LIST_TABLE, o.Table,
		unix.NFTA_SET_ELEM_LIST_SET, sourcesSet)
	o.Remote = readNets(msgs)
	return o, err
}

// noteSource notes in o what the comment of a rule tells.
func noteSource(o *dataplane.Sources, comment string) {
	kind, rest, _ := strings.Cut(comment, " ")
	if kind == dataplane.SourcesProcess {
		o.Node, _ = netip.ParseAddr(rest) // the zero Addr: no plan has it
		return
	}
	p, err := netip.ParsePrefix(rest)
	if err != nil {
		return
	}
	switch kind {
	case dataplane.SourcesHere:
		o.Here = p
	case dataplane.SourcesMasquerade:
		o.Masquerades = true
	case dataplane.SourcesOwn:
		o.Announced = append(o.Announced, p)
	case dataplane.SourcesFrom:
		o.Local = append(o.Local, p)
	}
}

// intact reports whether the table holds our set and chains, and nothing else.
func (s sources) intact() (bool, error) {
	holds, err := s.tableHolds(family4, s.owner.NFTable)
	if err != nil || holds != 1+len(dataplane.SourcesChains) {
		return false, err
	}
	for _, name := range dataplane.SourcesChains {
		hooked, accepts, err := s.tableChain(family4, s.owner.NFTable, name)
		if err != nil || hooked == (name == dataplane.SourcesMarking) || !accepts {
			return false, netlink.OrGone(err)
		}
	}
	return true, nil
}
