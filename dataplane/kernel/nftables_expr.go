//go:build linux

package kernel

import (
	"encoding/binary"
	"net/netip"

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
		&expr.Bitwise{
			SourceRegister: unix.NFT_REG_1,
			DestRegister:   unix.NFT_REG_1,
			Len:            4,
			Mask:           mask,
			Xor:            make([]byte, 4),
		},
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

const (
	ctOriginal = 0 // IP_CT_DIR_ORIGINAL, linux/netfilter/nf_conntrack_tuple_common.h
	ctReply    = 1 // IP_CT_DIR_REPLY
)

// masked clears the bits of a mark outside mask and then inverts those of xor.
func masked(mask, xor uint32) expr.Any {
	return &expr.Bitwise{
		SourceRegister: unix.NFT_REG_1,
		DestRegister:   unix.NFT_REG_1,
		Len:            4,
		Mask:           native(mask),
		Xor:            native(xor),
	}
}

// native returns a number as a mark has it in a register.
func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }
