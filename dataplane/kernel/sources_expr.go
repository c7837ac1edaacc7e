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
		&expr.Bitwise{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: 4, Mask: mask, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: p.Addr().AsSlice()},
	}
}

// lookup matches an address in a set.
func lookup(offset uint32, s *nftables.Set) []expr.Any {
	return []expr.Any{load(offset), &expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: s.Name, SetID: s.ID}}
}

// keep translates the source to itself.
var keep = []expr.Any{
	load(srcOffset),
	&expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: unix.NFT_REG_1},
}
