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

// etherTypeIPv4 is the EtherType of IPv4 (IEEE 802).
const etherTypeIPv4 = 0x0800

// icmpEchoReply is the type of ICMP messages that answer pings (RFC 792).
const icmpEchoReply = 0

// Offsets in the header of IPv4: of the protocol and of the checksum.
const (
	protocolOffset = 9
	csumOffset     = 10
)

// fragmentOffset is the offset of flags and fragment offset in the header of IPv4.
const fragmentOffset = 6

// exprs returns the expressions of a rule.
func exprs(r dataplane.AntispoofRule, sets map[string]*nftables.Set) (out []expr.Any) {
	for _, m := range r.Matches {
		out = append(out, matchExprs(m, sets)...)
	}
	if r.Source.IsValid() {
		out = append(out, &expr.Immediate{Register: unix.NFT_REG_1, Data: r.Source.AsSlice()}, &expr.Payload{
			OperationType:  expr.PayloadWrite,
			SourceRegister: unix.NFT_REG_1,
			Base:           expr.PayloadBaseNetworkHeader,
			Offset:         srcOffset,
			Len:            4,
			CsumType:       expr.CsumTypeInet,
			CsumOffset:     csumOffset,
			CsumFlags:      unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR,
		})
	}
	if r.Over != 0 {
		s := sets[dataplane.AntispoofSetEchoes]
		var sender expr.Any = load(srcOffset)
		if r.Carried {
			sender = &expr.Meta{Key: expr.MetaKeyPRIORITY, Register: unix.NFT_REG_1}
		}
		out = append(out, sender, &expr.Dynset{
			SrcRegKey: unix.NFT_REG_1, SetName: s.Name, SetID: s.ID, Operation: unix.NFT_DYNSET_OP_UPDATE,
			Exprs: []expr.Any{
				&expr.Limit{
					Type:  expr.LimitTypePkts,
					Unit:  expr.LimitTimeSecond,
					Rate:  uint64(r.Over),
					Burst: uint32(r.Over),
					Over:  true,
				},
			},
		})
	}
	switch {
	case r.Jump != "":
		return append(out, &expr.Verdict{Kind: expr.VerdictJump, Chain: r.Jump})
	case r.Accept:
		return append(out, &expr.Verdict{Kind: expr.VerdictAccept})
	case r.Return:
		return append(out, &expr.Verdict{Kind: expr.VerdictReturn})
	case r.Known != 0:
		s := sets[dataplane.AntispoofSetKnown]
		return append(append(out, known(r.Known)...), &expr.Dynset{
			SrcRegKey: unix.NFT_REG_1, SetName: s.Name, SetID: s.ID, Operation: unix.NFT_DYNSET_OP_ADD,
		})
	case r.Mark:
		return append(out, load(srcOffset), finds(sets[dataplane.AntispoofSetPeers], unix.NFT_REG_1, unix.NFT_REG_1),
			&expr.Meta{Key: expr.MetaKeyPRIORITY, SourceRegister: true, Register: unix.NFT_REG_1})
	case r.Sender:
		return append(out, load(srcOffset),
			&expr.Meta{Key: expr.MetaKeyPRIORITY, SourceRegister: true, Register: unix.NFT_REG_1})
	case r.Remember:
		ways := sets[dataplane.AntispoofSetWays]
		return append(append(out, way()...), &expr.Dynset{
			SrcRegKey: unix.NFT_REG_1, SetName: ways.Name, SetID: ways.ID, Operation: unix.NFT_DYNSET_OP_ADD,
		})
	}
	return append(out, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop})
}

// matchExprs returns the expressions of a match. A packet that is too short for one does not
// match: the kernel drops it as a VXLAN packet.
func matchExprs(m dataplane.Match, sets map[string]*nftables.Set) []expr.Any {
	const reg = unix.NFT_REG_1
	if out := errorExprs(m, sets); out != nil {
		return out
	}
	switch {
	case m.UDP:
		return isProtocol(unix.IPPROTO_UDP)
	case m.DPort != 0:
		return append(isProtocol(unix.IPPROTO_UDP),
			&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: binary.BigEndian.AppendUint16(nil, uint16(m.DPort))},
		)
	case m.TCPPorts.Max != 0:
		return append(
			isProtocol(unix.IPPROTO_TCP),
			&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{
				Op:       expr.CmpOpGte,
				Register: reg,
				Data:     binary.BigEndian.AppendUint16(nil, uint16(m.TCPPorts.Min)),
			},
			&expr.Cmp{
				Op:       expr.CmpOpLte,
				Register: reg,
				Data:     binary.BigEndian.AppendUint16(nil, uint16(m.TCPPorts.Max)),
			},
		)
	case m.OpensNot:
		return []expr.Any{
			&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: tcpFlags, Len: 1},
			&expr.Bitwise{
				SourceRegister: reg,
				DestRegister:   reg,
				Len:            1,
				Mask:           []byte{tcpSYN | tcpACK},
				Xor:            []byte{0},
			},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: reg, Data: []byte{tcpSYN}},
		}
	case m.Pong:
		return append(isProtocol(unix.IPPROTO_ICMP),
			&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: []byte{icmpEchoReply}},
		)
	case m.Reply:
		return []expr.Any{
			&expr.Ct{Key: expr.CtKeyDIRECTION, Register: reg},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: []byte{ctReply}},
		}
	case m.Translated:
		return dnatted()
	case m.Unasked:
		return []expr.Any{
			&expr.Ct{Key: expr.CtKeySTATE, Register: reg},
			&expr.Bitwise{
				SourceRegister: reg,
				DestRegister:   reg,
				Len:            4,
				Mask:           native(expr.CtStateBitINVALID),
				Xor:            make([]byte, 4),
			},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: reg, Data: make([]byte, 4)},
		}
	case m.DAddr.IsValid():
		return compare(dstOffset, expr.CmpOpEq, m.DAddr)
	case m.DAddrIn != "":
		return lookup(dstOffset, sets[m.DAddrIn])
	case m.DAddrNot.IsValid():
		return compare(dstOffset, expr.CmpOpNeq, m.DAddrNot)
	case m.DAddrNotIn != "":
		return lookupNot(dstOffset, sets[m.DAddrNotIn])
	case m.SAddr.IsValid():
		return compare(srcOffset, expr.CmpOpEq, m.SAddr)
	case m.SAddrNot.IsValid():
		return compare(srcOffset, expr.CmpOpNeq, m.SAddrNot)
	case m.SAddrIn != "":
		return lookup(srcOffset, sets[m.SAddrIn])
	case m.SAddrNotIn != "":
		return lookupNot(srcOffset, sets[m.SAddrNotIn])
	case m.NexthopIn != "":
		s := sets[m.NexthopIn]
		return []expr.Any{
			&expr.Rt{Register: reg, Key: expr.RtNexthop4},
			&expr.Lookup{SourceRegister: reg, SetName: s.Name, SetID: s.ID},
		}
	case m.SameIn != "":
		s := sets[m.SameIn]
		return []expr.Any{
			&expr.Payload{
				DestRegister: unix.NFT_REG32_00,
				Base:         expr.PayloadBaseNetworkHeader,
				Offset:       srcOffset,
				Len:          4,
			},
			&expr.Payload{
				DestRegister: unix.NFT_REG32_01,
				Base:         expr.PayloadBaseNetworkHeader,
				Offset:       dstOffset,
				Len:          4,
			},
			&expr.Lookup{SourceRegister: reg, SetName: s.Name, SetID: s.ID},
		}
	case m.MaskedBits != 0:
		s := sets[dataplane.AntispoofSetMasked]
		mask := dataplane.NetMask(m.MaskedBits).AsSlice()
		return []expr.Any{
			&expr.Payload{
				DestRegister: unix.NFT_REG32_00,
				Base:         expr.PayloadBaseNetworkHeader,
				Offset:       srcOffset,
				Len:          4,
			},
			&expr.Bitwise{
				SourceRegister: unix.NFT_REG32_00,
				DestRegister:   unix.NFT_REG32_00,
				Len:            4,
				Mask:           mask,
				Xor:            make([]byte, 4),
			},
			&expr.Immediate{Register: unix.NFT_REG32_01, Data: mask},
			&expr.Lookup{SourceRegister: reg, SetName: s.Name, SetID: s.ID},
		}
	case m.IIF != "":
		return []expr.Any{
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: reg},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: deviceName(m.IIF)},
		}
	case m.IIFNot != "":
		return []expr.Any{
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: reg},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: reg, Data: deviceName(m.IIFNot)},
		}
	case m.OIF != "":
		return []expr.Any{
			&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: reg},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: deviceName(m.OIF)},
		}
	case m.KnownWay:
		ways := sets[dataplane.AntispoofSetWays]
		return append(way(), &expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: ways.Name, SetID: ways.ID})
	case m.WrongWay:
		return []expr.Any{
			&expr.Fib{Register: reg, ResultOIF: true, FlagSADDR: true, FlagIIF: true, FlagPRESENT: true},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: make([]byte, 4)},
		}
	case m.InnerFrom.IsValid():
		return []expr.Any{
			&expr.Payload{
				DestRegister: reg,
				Base:         expr.PayloadBaseTransportHeader,
				Offset:       dataplane.InnerSourceOffset,
				Len:          4,
			},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: m.InnerFrom.AsSlice()},
		}
	case m.InnerNot.IsValid():
		return compareAt(expr.PayloadBaseTransportHeader, dataplane.InnerSourceOffset, expr.CmpOpNeq, m.InnerNot)
	case m.InnerNotIn != "":
		return lookupInner(dataplane.InnerSourceOffset, sets[m.InnerNotIn], true)
	case m.InnerToIn != "":
		return lookupInner(dataplane.InnerDestinationOffset, sets[m.InnerToIn], false)
	case m.InnerSameIn != "":
		s := sets[m.InnerSameIn]
		return []expr.Any{
			inside(unix.NFT_REG32_00, dataplane.InnerSourceOffset,
				4), inside(unix.NFT_REG32_01, dataplane.InnerDestinationOffset, 4),
			&expr.Lookup{SourceRegister: reg, SetName: s.Name, SetID: s.ID},
		}
	case m.InnerPort != 0:
		const (
			noOptions = 0x45   // version 4, 5 words
			fragment  = 0x3fff // more fragments, and the offset
		)
		return []expr.Any{
			inside(reg, dataplane.InnerHeaderOffset,
				1), &expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: []byte{noOptions}},
			inside(reg, dataplane.InnerFragmentOffset, 2),
			&expr.Bitwise{
				SourceRegister: reg,
				DestRegister:   reg,
				Len:            2,
				Mask:           binary.BigEndian.AppendUint16(nil, fragment),
				Xor:            make([]byte, 2),
			},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: make([]byte, 2)},
			inside(reg, dataplane.InnerProtocolOffset,
				1), &expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: []byte{unix.IPPROTO_UDP}},
			inside(reg, dataplane.InnerPortOffset, 2),
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: binary.BigEndian.AppendUint16(nil, uint16(m.InnerPort))},
		}
	case m.KnownBits != 0:
		s := sets[dataplane.AntispoofSetKnown]
		return append(known(m.KnownBits), &expr.Lookup{SourceRegister: reg, SetName: s.Name, SetID: s.ID})
	case m.NotIPv4:
		return []expr.Any{
			&expr.Payload{
				DestRegister: reg,
				Base:         expr.PayloadBaseTransportHeader,
				Offset:       dataplane.InnerTypeOffset,
				Len:          2,
			},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: reg, Data: binary.BigEndian.AppendUint16(nil, etherTypeIPv4)},
		}
	}
	return senderOf(dataplane.InnerSourceOffset, m.InnerBits, sets)
}

// senderOf looks an address inside a VXLAN packet up in the networks with so many bits of the
// sender.
func senderOf(offset, bits int, sets map[string]*nftables.Set) []expr.Any {
	s := sets[dataplane.AntispoofSetInner]
	mask := dataplane.NetMask(bits).AsSlice()
	return []expr.Any{
		&expr.Payload{DestRegister: unix.NFT_REG32_00, Base: expr.PayloadBaseNetworkHeader, Offset: srcOffset, Len: 4},
		inside(unix.NFT_REG32_01, offset, 4),
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

// isProtocol compares the protocol of an IPv4 packet, in tables of family ip. For a byte of the
// header, unlike for "meta l4proto", which has the same value, the kernel calls no function.
func isProtocol(p byte) []expr.Any {
	const reg = unix.NFT_REG_1
	return []expr.Any{
		&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: protocolOffset, Len: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: []byte{p}},
	}
}

// lookupNot looks an address up in a set that must not have it.
func lookupNot(offset uint32, s *nftables.Set) []expr.Any {
	return []expr.Any{
		load(offset),
		&expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: s.Name, SetID: s.ID, Invert: true},
	}
}

// inside loads bytes of the packet inside a VXLAN packet.
func inside(register uint32, offset, length int) expr.Any {
	return &expr.Payload{
		DestRegister: register,
		Base:         expr.PayloadBaseTransportHeader,
		Offset:       uint32(offset),
		Len:          uint32(length),
	}
}

// lookupInner looks an address inside a VXLAN packet up.
func lookupInner(offset int, s *nftables.Set, not bool) []expr.Any {
	return []expr.Any{
		inside(unix.NFT_REG_1, offset, 4),
		&expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: s.Name, SetID: s.ID, Invert: not},
	}
}

// known loads the key of the set "known" for a mask with so many bits.
func known(bits int) []expr.Any {
	mask := dataplane.NetMask(bits).AsSlice()
	return append(
		way(),
		inside(unix.NFT_REG32_02, dataplane.InnerSourceOffset, 4),
		&expr.Bitwise{
			SourceRegister: unix.NFT_REG32_02,
			DestRegister:   unix.NFT_REG32_02,
			Len:            4,
			Mask:           mask,
			Xor:            make([]byte, 4),
		},
		&expr.Immediate{Register: unix.NFT_REG32_03, Data: mask},
	)
}

// way loads the key of the set "ways": the source of a packet and the index of the device on which
// it arrived.
func way() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: unix.NFT_REG32_00, Base: expr.PayloadBaseNetworkHeader, Offset: srcOffset, Len: 4},
		&expr.Meta{Key: expr.MetaKeyIIF, Register: unix.NFT_REG32_01},
	}
}

// compare compares an address with a network: the bytes of its address that count, as nft does,
// which takes less time than a mask.
func compare(offset uint32, op expr.CmpOp, n netip.Prefix) []expr.Any {
	return compareAt(expr.PayloadBaseNetworkHeader, offset, op, n)
}

// compareAt compares an address at an offset from the beginning of a header.
func compareAt(base expr.PayloadBase, offset uint32, op expr.CmpOp, n netip.Prefix) []expr.Any {
	const reg = unix.NFT_REG_1
	if bytes := n.Bits() / 8; bytes > 0 && n.Bits()%8 == 0 {
		return []expr.Any{
			&expr.Payload{DestRegister: reg, Base: base, Offset: offset, Len: uint32(bytes)},
			&expr.Cmp{Op: op, Register: reg, Data: n.Addr().AsSlice()[:bytes]},
		}
	}
	return []expr.Any{
		&expr.Payload{DestRegister: reg, Base: base, Offset: offset, Len: 4},
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

const (
	tcpFlags = 13 // offset in the TCP header (RFC 9293)
	tcpSYN   = 0x02
	tcpACK   = 0x10
)

// finds looks a key up in a map.
func finds(m *nftables.Set, key, value uint32) expr.Any {
	return &expr.Lookup{SourceRegister: key, DestRegister: value, IsDestRegSet: true, SetName: m.Name, SetID: m.ID}
}
