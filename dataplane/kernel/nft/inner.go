//go:build linux

package nft

import (
	"subctl/dataplane"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

// This file adds the rules of dataplane.Ruleset that nft(8) prints but does not read: see
// dataplane.InnerAddress.

// prepare does what is to be done before nft(8) writes a table that has such rules, and returns the
// table as it then is. All elements of new sets go over netlink, too: nft(8) would need 200 MB for
// the maps of 50,000 global addresses.
//
// A table that another program has turned into something else is removed first. Nothing is
// translated until it is made anew, and the table against forged packets drops what is not.
func (s rulesets) prepare(t dataplane.Nftable, have, w dataplane.Ruleset) (dataplane.Ruleset, error) {
	if !w.HasInner() {
		return have, nil
	}
	if w.Conflicts(have) {
		if err := s.remove(have); err != nil {
			return have, err
		}
		have = dataplane.Ruleset{}
	}
	empty, filled := w.Prepared(have)
	if have.Table == "" || !empty.SameShape(have) {
		if err := s.run(empty.Script(have)); err != nil {
			return have, err
		}
	}
	if filled.Equal(empty) {
		return filled, nil
	}
	return filled, s.alterElements(t, empty, filled)
}

// addInner adds a rule about the packet inside an ICMP error to a chain. A lookup that finds
// nothing ends the rule.
func addInner(tx *nftables.Conn, chain *nftables.Chain, rule dataplane.TextRule) {
	const (
		reg           = unix.NFT_REG_1
		sourceAddress = 12 // in the IPv4 header
		checksum      = 10
	)
	at := uint32(dataplane.ErrorSource)
	if rule.Inner.Leaves {
		at = dataplane.ErrorDestination
	}
	exprs := []expr.Any{
		&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: at, Len: 4},
		&expr.Lookup{SourceRegister: reg, DestRegister: reg, IsDestRegSet: true, SetName: rule.Inner.Map},
		&expr.Payload{
			OperationType: expr.PayloadWrite, SourceRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: at,
			Len: 4, CsumType: expr.CsumTypeInet, CsumOffset: dataplane.ErrorChecksum,
		},
	}
	if rule.Inner.Leaves {
		exprs = append(exprs, &expr.Payload{
			OperationType: expr.PayloadWrite, SourceRegister: reg, Base: expr.PayloadBaseNetworkHeader,
			Offset: sourceAddress, Len: 4, CsumType: expr.CsumTypeInet, CsumOffset: checksum,
		})
	}
	tx.AddRule(&nftables.Rule{
		Table: chain.Table, Chain: chain, Exprs: exprs,
		UserData: userdata.AppendString(nil, userdata.TypeComment, rule.Comment()),
	})
}
