//go:build linux

package kernel

import (
	"net/netip"

	"subctl/dataplane"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Registers of four bytes. A key occupies several, from keyReg on; what a map has for it is from
// valueReg on.
const (
	keyReg   = unix.NFT_REG32_00 // four of them
	hashReg  = unix.NFT_REG32_04 // two
	valueReg = unix.NFT_REG32_08 // two
)

// globalnetExprs returns the expressions of a rule.
func globalnetExprs(r dataplane.GlobalnetRule, maps map[string]*nftables.Set) []expr.Any {
	out := globalnetMatches(r)
	switch {
	case r.Jump != "":
		return append(out, &expr.Verdict{Kind: expr.VerdictJump, Chain: r.Jump})
	case r.Goto != "":
		return append(out, &expr.Verdict{Kind: expr.VerdictGoto, Chain: r.Goto})
	}
	return append(out, globalnetAction(r, maps)...)
}

// firstTo matches connections by the network of their destination, before translation.
func firstTo(n netip.Prefix) []expr.Any {
	const reg = unix.NFT_REG_1
	return []expr.Any{
		&expr.Ct{Key: ctOriginalDestination, Register: reg, Direction: ctOriginal},
		&expr.Bitwise{
			SourceRegister: reg, DestRegister: reg, Len: 4, Mask: dataplane.NetMask(n.Bits()).AsSlice(),
			Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: n.Addr().AsSlice()},
	}
}

// globalnetMatches returns the expressions of what a rule matches.
func globalnetMatches(r dataplane.GlobalnetRule) (out []expr.Any) {
	const reg = unix.NFT_REG_1
	add := func(es ...expr.Any) { out = append(out, es...) }
	proto := func(n byte) {
		add(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: []byte{n}})
	}
	icmp := func(typ byte) {
		proto(unix.IPPROTO_ICMP)
		add(&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Len: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: []byte{typ}})
	}
	if r.IIF != "" {
		add(&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: reg},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: deviceName(r.IIF)})
	}
	if r.OIF != "" {
		add(&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: reg},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: deviceName(r.OIF)})
	}
	if r.First.IsValid() {
		add(firstTo(r.First)...)
	}
	if r.From.IsValid() {
		add(compare(srcOffset, expr.CmpOpEq, r.From)...)
	}
	if r.To.IsValid() {
		add(compare(dstOffset, expr.CmpOpEq, r.To)...)
	}
	switch {
	case r.ICMP:
		proto(unix.IPPROTO_ICMP)
	case r.UDP:
		proto(unix.IPPROTO_UDP)
	case r.Echo:
		icmp(echoRequest)
	case r.Error != 0:
		icmp(r.Error)
	case r.Midway:
		proto(unix.IPPROTO_TCP)
		add(&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: tcpFlags, Len: 1},
			&expr.Bitwise{SourceRegister: reg, DestRegister: reg, Len: 1, Mask: []byte{tcpSYN}, Xor: []byte{0}},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: []byte{0}})
	}
	return out
}

const (
	echoRequest = 8  // type of ICMP (RFC 792)
	tcpFlags    = 13 // offset in the TCP header (RFC 9293)
	tcpSYN      = 0x02
	tcpACK      = 0x10

	ctOriginalDestination = expr.CtKeyDST
)

// globalnetAction returns the expressions of what a rule does. A lookup that finds nothing ends the
// rule.
func globalnetAction(r dataplane.GlobalnetRule, maps map[string]*nftables.Set) (out []expr.Any) {
	network := func(offset uint32) expr.Any {
		return &expr.Payload{DestRegister: keyReg, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4}
	}
	transport := func(register, offset, n uint32) expr.Any {
		return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: n}
	}
	find := func(name string) expr.Any { return finds(maps[name], keyReg, valueReg) }
	nat := func(typ expr.NATType, a expr.NAT) expr.Any {
		a.Type = typ
		a.Family = unix.NFPROTO_IPV4
		return &a
	}
	addr := expr.NAT{RegAddrMin: valueReg}
	addrPort := expr.NAT{RegAddrMin: valueReg, RegProtoMin: valueReg + 1, Specified: true}
	l4 := &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: keyReg + 1}
	switch r.Do {
	case dataplane.GlobalnetAccept:
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
	case dataplane.GlobalnetToOwner:
		return []expr.Any{network(dstOffset), find(dataplane.GlobalnetOwn), setAddress(dstOffset)}
	case dataplane.GlobalnetFromOwn:
		return []expr.Any{network(srcOffset), find(dataplane.GlobalnetOwners), setAddress(srcOffset)}
	case dataplane.GlobalnetInnerToOwner:
		return []expr.Any{
			transport(keyReg, dataplane.ErrorSource, 4),
			find(dataplane.GlobalnetOwn),
			setInner(dataplane.ErrorSource),
		}
	case dataplane.GlobalnetInnerFromOwn:
		return []expr.Any{
			transport(keyReg, dataplane.ErrorDestination, 4),
			find(dataplane.GlobalnetOwners),
			setInner(dataplane.ErrorDestination),
			setAddress(srcOffset),
		}
	case dataplane.GlobalnetClassify:
		return []expr.Any{
			network(
				dstOffset),
			l4,
			transport(keyReg+2, 2, 2),
			finds(maps[dataplane.GlobalnetServices], keyReg, unix.NFT_REG_VERDICT),
		}
	case dataplane.GlobalnetToBackend:
		return append(append([]expr.Any{network(dstOffset), l4, transport(keyReg+2, 2, 2)}, slot(r)...),
			find(dataplane.GlobalnetBackends), nat(expr.NATTypeDestNAT, addrPort))
	case dataplane.GlobalnetToEcho:
		return []expr.Any{network(dstOffset), find(dataplane.GlobalnetEchoes), nat(expr.NATTypeDestNAT, addr)}
	case dataplane.GlobalnetKeepDestination:
		return []expr.Any{network(dstOffset), nat(expr.NATTypeDestNAT, expr.NAT{RegAddrMin: keyReg})}
	case dataplane.GlobalnetKeepSource:
		return []expr.Any{network(srcOffset), nat(expr.NATTypeSourceNAT, expr.NAT{RegAddrMin: keyReg})}
	case dataplane.GlobalnetKeepOwn:
		return []expr.Any{
			network(srcOffset),
			find(dataplane.GlobalnetOwners),
			nat(expr.NATTypeSourceNAT, expr.NAT{RegAddrMin: keyReg}),
		}
	case dataplane.GlobalnetReplyFrom:
		return []expr.Any{
			network(srcOffset),
			l4,
			transport(keyReg+2, 0, 2),
			find(dataplane.GlobalnetReplies),
			nat(expr.NATTypeSourceNAT, addrPort),
		}
	case dataplane.GlobalnetPool:
		return []expr.Any{network(srcOffset), finds(maps[dataplane.GlobalnetPools], keyReg, unix.NFT_REG_VERDICT)}
	case dataplane.GlobalnetFromSource:
		return append(append([]expr.Any{network(srcOffset)}, sourceSlot(r, keyReg+1)...),
			find(dataplane.GlobalnetSources), nat(expr.NATTypeSourceNAT, addr))
	case dataplane.GlobalnetFromShared:
		return append(sourceSlot(r, keyReg), find(dataplane.GlobalnetShared), nat(expr.NATTypeSourceNAT, addr))
	case dataplane.GlobalnetMasquerade:
		return []expr.Any{&expr.Masq{}}
	case dataplane.GlobalnetDrop:
		return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}
	}
	return nil
}

// slot computes the slot of a Service's endpoint, the last part of a key.
func slot(r dataplane.GlobalnetRule) []expr.Any {
	out := []expr.Any{
		&expr.Payload{DestRegister: hashReg, Base: expr.PayloadBaseNetworkHeader, Offset: srcOffset, Len: 4},
	}
	if r.Client {
		return append(out, hashed(r, 4, keyReg+3))
	}
	return append(out, &expr.Payload{DestRegister: hashReg + 1, Base: expr.PayloadBaseTransportHeader, Len: 2},
		hashed(r, 8, keyReg+3))
}

// sourceSlot computes the slot of a source address.
func sourceSlot(r dataplane.GlobalnetRule, to uint32) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: hashReg, Base: expr.PayloadBaseNetworkHeader, Offset: srcOffset, Len: 4},
		&expr.Payload{DestRegister: hashReg + 1, Base: expr.PayloadBaseNetworkHeader, Offset: dstOffset, Len: 4},
		hashed(r, 8, to),
	}
}

// hashed hashes so many bytes to the number of a slot.
func hashed(r dataplane.GlobalnetRule, n, to uint32) expr.Any {
	return &expr.Hash{
		SourceRegister: hashReg,
		DestRegister:   to,
		Length:         n,
		Modulus:        uint32(r.Slots),
		Seed:           dataplane.GlobalnetSeed,
		Type:           expr.HashTypeJenkins,
	}
}

// finds looks a key up in a map.
func finds(m *nftables.Set, key, value uint32) expr.Any {
	return &expr.Lookup{SourceRegister: key, DestRegister: value, IsDestRegSet: true, SetName: m.Name, SetID: m.ID}
}

// setAddress writes what a map had into the IPv4 header, with the checksums of both headers.
func setAddress(offset uint32) expr.Any {
	return &expr.Payload{
		OperationType:  expr.PayloadWrite,
		SourceRegister: valueReg,
		Base:           expr.PayloadBaseNetworkHeader,
		Offset:         offset,
		Len:            4,
		CsumType:       expr.CsumTypeInet,
		CsumOffset:     csumOffset,
		CsumFlags:      unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR,
	}
}

// setInner writes what a map had into the IPv4 header inside an ICMP error, with its checksum. The
// checksum of the ICMP packet stays valid: the sum of an IPv4 header with its checksum is always
// the same.
func setInner(offset uint32) expr.Any {
	return &expr.Payload{
		OperationType:  expr.PayloadWrite,
		SourceRegister: valueReg,
		Base:           expr.PayloadBaseTransportHeader,
		Offset:         offset,
		Len:            4,
		CsumType:       expr.CsumTypeInet,
		CsumOffset:     dataplane.ErrorChecksum,
	}
}
