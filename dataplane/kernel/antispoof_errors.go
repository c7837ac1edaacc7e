//go:build linux

package kernel

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"subctl/dataplane"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// This file has what Antispoof needs for ICMP errors: the expressions of its matches, the map
// "peers" and the set "behind".

// errorExprs returns the expressions of a match about ICMP; nil if it is another match. A packet
// that is too short does not match.
func errorExprs(m dataplane.Match, sets map[string]*nftables.Set) []expr.Any {
	const (
		reg    = unix.NFT_REG_1
		offset = 0x1fff // of a fragment
	)
	is := func(op expr.CmpOp, b ...byte) expr.Any { return &expr.Cmp{Op: op, Register: reg, Data: b} }
	between := func(r dataplane.Range) []expr.Any {
		return []expr.Any{is(expr.CmpOpGte, byte(r.Min)), is(expr.CmpOpLte, byte(r.Max))}
	}
	switch {
	case m.ICMP:
		return isProtocol(unix.IPPROTO_ICMP)
	case m.ICMPTypes.Max != 0:
		return append([]expr.Any{inside(reg, 0, 1)}, between(m.ICMPTypes)...)
	case m.ErrorBits != 0:
		return carried(inside(unix.NFT_REG32_01, dataplane.ErrorDestination, 4), m.ErrorBits,
			sets[dataplane.AntispoofSetBehind])
	case m.SenderErrorBits != 0:
		return carried(inside(unix.NFT_REG32_01, dataplane.ErrorDestination, 4), m.SenderErrorBits,
			sets[dataplane.AntispoofSetInner])
	case m.SenderIn != "":
		s := sets[m.SenderIn]
		return []expr.Any{
			&expr.Meta{Key: expr.MetaKeyPRIORITY, Register: reg},
			&expr.Lookup{SourceRegister: reg, SetName: s.Name, SetID: s.ID},
		}
	case m.SenderBits != 0:
		return carried(
			&expr.Payload{
				DestRegister: unix.NFT_REG32_01,
				Base:         expr.PayloadBaseNetworkHeader,
				Offset:       srcOffset,
				Len:          4,
			},
			m.SenderBits,
			sets[dataplane.AntispoofSetInner],
		)
	case m.ErrorTo.IsValid():
		return []expr.Any{inside(reg, dataplane.ErrorDestination, 4), is(expr.CmpOpEq, m.ErrorTo.AsSlice()...)}
	case m.Rest:
		return []expr.Any{
			&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: fragmentOffset, Len: 2},
			&expr.Bitwise{
				SourceRegister: reg,
				DestRegister:   reg,
				Len:            2,
				Mask:           binary.BigEndian.AppendUint16(nil, offset),
				Xor:            make([]byte, 2),
			}, is(expr.CmpOpNeq, 0, 0),
		}
	}
	return nil
}

// carried looks the priority of a packet, and an address that has been loaded, up in the networks
// with so many bits.
func carried(address expr.Any, bits int, s *nftables.Set) []expr.Any {
	mask := dataplane.NetMask(bits).AsSlice()
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyPRIORITY, Register: unix.NFT_REG32_00}, address,
		&expr.Bitwise{
			SourceRegister: unix.NFT_REG32_01,
			DestRegister:   unix.NFT_REG32_01,
			Len:            4,
			Mask:           mask,
			Xor:            make([]byte, 4),
		},
		&expr.Immediate{Register: unix.NFT_REG32_02, Data: mask},
		&expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: s.Name, SetID: s.ID},
	}
}

// alterPeers adds and removes single elements.
func alterPeers(tx *nftables.Conn, sets map[string]*nftables.Set, have, want dataplane.Antispoof) error {
	peers := sets[dataplane.AntispoofSetPeers]
	behind := sets[dataplane.AntispoofSetBehind]
	gone := dataplane.Without(have.Behind, want.Behind)
	added := dataplane.Without(want.Behind, have.Behind)
	return errors.Join(
		peerElements(gone, func(e []nftables.SetElement) error { return tx.SetDeleteElements(peers, e) }),
		peerElements(added, func(e []nftables.SetElement) error { return tx.SetAddElements(peers, e) }),
		innerElements(asInner(gone), func(e []nftables.SetElement) error { return tx.SetDeleteElements(behind, e) }),
		innerElements(asInner(added), func(e []nftables.SetElement) error { return tx.SetAddElements(behind, e) }))
}

// asInner returns networks as elements of a set such as "inner": "behind" has the same type.
func asInner(nets []dataplane.PeerNet) (out []dataplane.InnerSource) {
	for _, n := range nets {
		out = append(out, dataplane.InnerSource{Outer: n.Peer, Net: n.Net})
	}
	return out
}

// peerElements calls do with elements of the map "peers", some at a time.
func peerElements(nets []dataplane.PeerNet, do func([]nftables.SetElement) error) error {
	return valued(nets, func(n dataplane.PeerNet) (netip.Prefix, string, []byte) { return n.Net, "", n.Peer.AsSlice() },
		do)
}

// readPeers returns the elements of the map "peers", sorted. An element that no plan can have is
// zero, and so is one more if the set "behind" has others.
func readPeers(peers, behind [][]byte) (out []dataplane.PeerNet) {
	intervals(peers, func(n netip.Prefix, b bound) {
		var p dataplane.PeerNet
		if ip, ok := netip.AddrFromSlice(b.value); ok && n.IsValid() {
			p = dataplane.PeerNet{Net: n, Peer: ip}
		}
		out = append(out, p)
	})
	slices.SortFunc(out, dataplane.PeerNet.Compare)
	same := asInner(out)
	slices.SortFunc(same, dataplane.InnerSource.Compare)
	if !slices.Equal(same, readInner(behind)) {
		out = append(out, dataplane.PeerNet{})
	}
	return out
}
