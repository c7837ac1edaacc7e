//go:build linux

package kernel

import (
	"encoding/binary"
	"net/netip"

	"subctl/dataplane"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Offsets of addresses in the IPv4 header (RFC 791).
const (
	srcOffset = 12
	dstOffset = 16
)

func load(offset uint32) *expr.Payload {
	return &expr.Payload{DestRegister: unix.NFT_REG_1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4}
}

// within matches an address in a network.
func within(offset uint32, p netip.Prefix) []expr.Any {
	mask := binary.BigEndian.AppendUint32(nil, uint32(uint64(0xffffffff)<<(32-p.Bits())))
	return []expr.Any{
		load(offset),
		&expr.Bitwise{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: 4, Mask: mask, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: p.Addr().AsSlice()},
	}
}

// lookup matches an address in a set.
func lookup(offset uint32, s *nftables.Set) []expr.Any {
	return []expr.Any{load(offset), &expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: s.Name, SetID: s.ID}}
}

// ctDNAT is IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h.
const ctDNAT = 1 << 5

// dnatted matches connections whose destination has been translated here.
func dnatted() []expr.Any {
	const reg = unix.NFT_REG_1
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: reg},
		masked(ctDNAT, 0),
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg, Data: native(0)},
	}
}

// sourcesExprs returns the expressions of a rule. remote is the set of networks of other clusters.
func sourcesExprs(r dataplane.SourcesRule, remote *nftables.Set) (out []expr.Any) {
	const reg = unix.NFT_REG_1
	switch {
	case r.Node.IsValid():
		out = append(lookupNot(srcOffset, remote), lookup(dstOffset, remote)...)
		if r.Translated {
			out = append(out, dnatted()...)
		} else {
			out = append(out, &expr.Fib{Register: reg, ResultADDRTYPE: true, FlagSADDR: true},
				&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: native(unix.RTN_LOCAL)})
		}
		return append(out, &expr.Immediate{Register: reg, Data: r.Node.AsSlice()}, snat)
	case r.Own:
		return append(firstTo(r.To), &expr.Verdict{Kind: expr.VerdictReturn})
	case r.Mark:
		return []expr.Any{
			&expr.Ct{Key: expr.CtKeyMARK, Register: reg}, masked(^uint32(dataplane.ReturnMask), dataplane.DirectMark),
			&expr.Ct{Key: expr.CtKeyMARK, Register: reg, SourceRegister: true},
		}
	case r.Direct:
		out = []expr.Any{
			&expr.Ct{Key: expr.CtKeyMARK, Register: reg}, masked(dataplane.ReturnMask, 0),
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: native(dataplane.DirectMark)},
		}
		return append(append(out, within(dstOffset, r.To)...), &expr.Masq{})
	case r.Jump != "":
		out = lookup(srcOffset, remote)
		for _, d := range dataplane.NodeDevices() {
			out = append(out, &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: reg},
				&expr.Cmp{Op: expr.CmpOpNeq, Register: reg, Data: deviceName(d)})
		}
		return append(out, &expr.Verdict{Kind: expr.VerdictJump, Chain: r.Jump})
	}
	if r.From.IsValid() {
		out = append(within(srcOffset, r.From), lookup(dstOffset, remote)...)
	} else {
		out = append(lookup(srcOffset, remote), within(dstOffset, r.To)...)
	}
	if r.Masquerades {
		out = append(out, dnatted()...)
	}
	for _, d := range r.NotOn {
		out = append(out, &expr.Meta{Key: expr.MetaKeyOIFNAME, Register: reg}, &expr.Cmp{Op: expr.CmpOpNeq, Register: reg, Data: deviceName(d)})
	}
	if r.Masquerades {
		return append(out, &expr.Masq{})
	}
	return append(out, keep...)
}

// snat translates the source to the address in the register.
var snat = &expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: unix.NFT_REG_1}

// keep translates the source to itself.
var keep = []expr.Any{load(srcOffset), snat}
