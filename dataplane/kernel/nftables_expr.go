//go:build linux

package kernel

import (
	"encoding/binary"
	"net/netip"

	"subctl/dataplane"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Offsets of addresses in the IPv4 header (RFC 791).
const (
	csumOffset = 10
	srcOffset  = 12
	dstOffset  = 16
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

// ctDNAT is IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h.
const ctDNAT = 1 << 5

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

// compare compares an address with a network: the bytes of its address that count, as nft does,
// which takes less time than a mask.
func compare(offset uint32, op expr.CmpOp, n netip.Prefix) []expr.Any {
	const reg = unix.NFT_REG_1
	if bytes := n.Bits() / 8; bytes > 0 && n.Bits()%8 == 0 {
		return []expr.Any{
			&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(bytes)},
			&expr.Cmp{Op: op, Register: reg, Data: n.Addr().AsSlice()[:bytes]},
		}
	}
	return []expr.Any{
		&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Bitwise{
			SourceRegister: reg,
			DestRegister:   reg,
			Len:            4,
			Mask:           dataplane.NetMask(n.Bits()).AsSlice(),
			Xor:            make([]byte, 4),
		},
		&expr.Cmp{Op: op, Register: reg, Data: n.Addr().AsSlice()},
	}
}

// deviceName returns what the kernel compares with the name of a device: all its bytes, or the
// prefix before dataplane.DeviceAny.
func deviceName(name string) []byte {
	if n := len(name) - len(dataplane.DeviceAny); name[n:] == dataplane.DeviceAny {
		return []byte(name[:n])
	}
	out := make([]byte, unix.IFNAMSIZ)
	copy(out, name)
	return out
}
