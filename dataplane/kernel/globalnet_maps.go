//go:build linux

package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// This file writes and reads the elements of the maps of Globalnet.

// mapsOf returns all maps, by name.
func mapsOf(table *nftables.Table) map[string]*nftables.Set {
	addr := nftables.TypeIPAddr
	mark := nftables.TypeMark
	port := nftables.MustConcatSetType(addr, nftables.TypeInetProto, nftables.TypeInetService)
	to := nftables.MustConcatSetType(addr, nftables.TypeInetService)
	out := map[string]*nftables.Set{}
	for name, types := range map[string][2]nftables.SetDatatype{
		dataplane.GlobalnetOwn:      {addr, addr},
		dataplane.GlobalnetOwners:   {addr, addr},
		dataplane.GlobalnetEchoes:   {addr, addr},
		dataplane.GlobalnetServices: {port, nftables.TypeVerdict},
		dataplane.GlobalnetBackends: {
			nftables.MustConcatSetType(addr, nftables.TypeInetProto, nftables.TypeInetService, mark),
			to,
		},
		dataplane.GlobalnetReplies: {port, to},
		dataplane.GlobalnetPools:   {addr, nftables.TypeVerdict},
		dataplane.GlobalnetSources: {nftables.MustConcatSetType(addr, mark), addr},
		dataplane.GlobalnetShared:  {mark, addr},
	} {
		out[name] = &nftables.Set{Table: table, Name: name, IsMap: true, KeyType: types[0], DataType: types[1]}
	}
	return out
}

// mapEntry is an element of a map: a key, and a value or a chain.
type mapEntry struct {
	key, value []byte
	chain      string
}

// alterMaps adds and removes single elements.
func alterMaps(tx *nftables.Conn, maps map[string]*nftables.Set, have, want dataplane.Globalnet) error {
	own := func(a dataplane.GlobalAddr) mapEntry { return mapEntry{addr4(a.Global), addr4(a.Local), ""} }
	owners := func(a dataplane.GlobalAddr) mapEntry { return mapEntry{addr4(a.Local), addr4(a.Global), ""} }
	return errors.Join(
		alterMap(tx, maps[dataplane.GlobalnetOwn], have.Own, want.Own, own),
		alterMap(tx, maps[dataplane.GlobalnetOwners], have.Own, want.Own, owners),
		alterMap(tx, maps[dataplane.GlobalnetEchoes], have.Echoes, want.Echoes, own),
		alterMap(
			tx,
			maps[dataplane.GlobalnetServices],
			have.Services,
			want.Services,
			func(s dataplane.GlobalService) mapEntry {
				return mapEntry{portKey(s.Addr, s.Proto, s.Port), nil, s.Class()}
			},
		),
		alterMap(
			tx,
			maps[dataplane.GlobalnetBackends],
			have.Backends,
			want.Backends,
			func(b dataplane.GlobalBackend) mapEntry {
				return mapEntry{
					append(portKey(b.Addr, b.Proto, b.Port), native(uint32(b.Slot))...),
					addrPort8(b.To),
					"",
				}
			},
		),
		alterMap(
			tx,
			maps[dataplane.GlobalnetReplies],
			have.Replies,
			want.Replies,
			func(r dataplane.GlobalReply) mapEntry {
				return mapEntry{portKey(r.From.Addr(), r.Proto, r.From.Port()), addrPort8(r.As), ""}
			},
		),
		alterMap(tx, maps[dataplane.GlobalnetPools], have.Pools, want.Pools, func(p dataplane.GlobalPool) mapEntry {
			return mapEntry{addr4(p.Pod), nil, p.Class()}
		}),
		alterMap(
			tx,
			maps[dataplane.GlobalnetSources],
			have.Sources,
			want.Sources,
			func(s dataplane.GlobalSource) mapEntry {
				return mapEntry{append(addr4(s.Pod), native(uint32(s.Slot))...), addr4(s.Global), ""}
			},
		),
		alterMap(tx, maps[dataplane.GlobalnetShared], have.Shared, want.Shared, func(s dataplane.GlobalShare) mapEntry {
			return mapEntry{native(uint32(s.Slot)), addr4(s.Global), ""}
		}),
	)
}

// alterMap adds and removes the elements of a map that differ. Both lists are sorted.
func alterMap[T interface{ Compare(T) int }](
	tx *nftables.Conn,
	m *nftables.Set,
	have, want []T,
	of func(T) mapEntry,
) error {
	for batch := range slices.Chunk(dataplane.Without(have, want), nftBatch) {
		var out []nftables.SetElement
		for _, item := range batch {
			out = append(out, nftables.SetElement{Key: of(item).key})
		}
		if err := tx.SetDeleteElements(m, out); err != nil {
			return err
		}
	}
	for batch := range slices.Chunk(dataplane.Without(want, have), nftBatch) {
		out := make([]nftables.SetElement, 0, len(batch))
		for _, item := range batch {
			e := of(item)
			element := nftables.SetElement{Key: e.key, Val: e.value}
			if e.chain != "" {
				element.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: e.chain}
			}
			out = append(out, element)
		}
		if err := tx.SetAddElements(m, out); err != nil {
			return err
		}
	}
	return nil
}

// read returns the table. It is damaged if a map has elements that no plan can have.
func (s globalnets) read() (dataplane.Globalnet, error) {
	o := dataplane.Globalnet{Table: s.owner.Globalnet}
	var err error
	o.Seen, err = s.tableFingerprint(family4, o.Table, func(chain string) bool {
		_, hook, _ := dataplane.GlobalnetHook(chain)
		return hook != ""
	})
	if err != nil || o.Seen == damaged {
		return o, err
	}
	intact, err := s.readMaps(&o)
	if err != nil {
		return o, err
	}
	if !intact {
		return dataplane.Globalnet{Table: o.Table, Seen: damaged}, nil
	}
	return o, nil
}

// readMaps reads the elements of the maps, and reports whether a plan can have them.
func (s globalnets) readMaps(o *dataplane.Globalnet) (intact bool, err error) {
	var owners []dataplane.GlobalAddr
	classes := map[string]dataplane.GlobalService{}
	for _, c := range dataplane.GlobalClasses() {
		classes[c.Class()] = c
	}
	pools := map[string]dataplane.GlobalPool{}
	for _, p := range dataplane.GlobalPools() {
		pools[p.Class()] = p
	}
	readers := map[string]func(key, value []byte) bool{
		dataplane.GlobalnetOwn:    addrsReader(&o.Own, false),
		dataplane.GlobalnetOwners: addrsReader(&owners, true),
		dataplane.GlobalnetEchoes: addrsReader(&o.Echoes, false),
		dataplane.GlobalnetServices: func(k, v []byte) bool {
			addr, proto, port, ok := readPort(k)
			class, known := classes[string(chainOf(v))]
			if !ok || !known {
				return false
			}
			class.Addr = addr
			class.Proto = proto
			class.Port = port
			o.Services = append(o.Services, class)
			return true
		},
		dataplane.GlobalnetBackends: func(k, v []byte) bool {
			addr, proto, port, ok := readPort(k)
			to, toOK := readAddrPort(v)
			if !ok || !toOK || len(k) != 16 {
				return false
			}
			o.Backends = append(
				o.Backends,
				dataplane.GlobalBackend{
					Addr:  addr,
					Proto: proto,
					Port:  port,
					Slot:  uint16(binary.NativeEndian.Uint32(k[12:])),
					To:    to,
				},
			)
			return true
		},
		dataplane.GlobalnetReplies: func(k, v []byte) bool {
			addr, proto, port, ok := readPort(k)
			as, asOK := readAddrPort(v)
			if !ok || !asOK || len(k) != 12 {
				return false
			}
			o.Replies = append(o.Replies,
				dataplane.GlobalReply{From: netip.AddrPortFrom(addr, port), Proto: proto, As: as})
			return true
		},
		dataplane.GlobalnetPools: func(k, v []byte) bool {
			pool, known := pools[string(chainOf(v))]
			pool.Pod = addrOf(k)
			o.Pools = append(o.Pools, pool)
			return known
		},
		dataplane.GlobalnetSources: func(k, v []byte) bool {
			if len(k) != 8 || len(v) != 4 {
				return false
			}
			o.Sources = append(
				o.Sources,
				dataplane.GlobalSource{
					Pod:    addrOf(k),
					Slot:   uint8(binary.NativeEndian.Uint32(k[4:])),
					Global: addrOf(v),
				},
			)
			return true
		},
		dataplane.GlobalnetShared: func(k, v []byte) bool {
			if len(v) != 4 {
				return false
			}
			o.Shared = append(o.Shared,
				dataplane.GlobalShare{Slot: uint8(binary.NativeEndian.Uint32(k)), Global: addrOf(v)})
			return true
		},
	}
	for _, name := range dataplane.GlobalnetMaps() {
		msgs, err := s.nft(family4, unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, unix.NFTA_SET_ELEM_LIST_TABLE, o.Table,
			unix.NFTA_SET_ELEM_LIST_SET, name)
		if netlink.Gone(err) {
			return false, nil // another program has made the table
		}
		if err != nil || !mapEntries(msgs, readers[name]) {
			return false, err
		}
	}
	slices.SortFunc(o.Own, dataplane.GlobalAddr.Compare)
	slices.SortFunc(owners, dataplane.GlobalAddr.Compare)
	slices.SortFunc(o.Echoes, dataplane.GlobalAddr.Compare)
	slices.SortFunc(o.Services, dataplane.GlobalService.Compare)
	slices.SortFunc(o.Backends, dataplane.GlobalBackend.Compare)
	slices.SortFunc(o.Replies, dataplane.GlobalReply.Compare)
	slices.SortFunc(o.Pools, dataplane.GlobalPool.Compare)
	slices.SortFunc(o.Sources, dataplane.GlobalSource.Compare)
	slices.SortFunc(o.Shared, dataplane.GlobalShare.Compare)
	return slices.Equal(o.Own, owners), nil
}

// addrsReader returns a reader of pairs of addresses, the local one first if it is reversed.
func addrsReader(out *[]dataplane.GlobalAddr, reversed bool) func(key, value []byte) bool {
	return func(k, v []byte) bool {
		if len(k) != 4 || len(v) != 4 {
			return false
		}
		if reversed {
			k, v = v, k
		}
		*out = append(*out, dataplane.GlobalAddr{Global: addrOf(k), Local: addrOf(v)})
		return true
	}
}

// mapEntries calls read for each element of a map, until it returns false, which it then returns,
// too.
func mapEntries(msgs [][]byte, read func(key, value []byte) bool) bool {
	for _, m := range msgs {
		for t, list := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
			if t != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				continue
			}
			for _, elem, rest, ok := netlink.NextAttr(list); ok; _, elem, rest, ok = netlink.NextAttr(rest) {
				if key, value := elementOf(elem); len(key) < 4 || !read(key, value) {
					return false
				}
			}
		}
	}
	return true
}

// elementOf returns the key and the value of an element of a map.
func elementOf(elem []byte) (key, value []byte) {
	for t, v, rest, ok := netlink.NextAttr(elem); ok; t, v, rest, ok = netlink.NextAttr(rest) {
		switch t {
		case unix.NFTA_SET_ELEM_KEY:
			_, key, _, _ = netlink.NextAttr(v)
		case unix.NFTA_SET_ELEM_DATA:
			_, value, _, _ = netlink.NextAttr(v)
		}
	}
	return key, value
}

// chainOf returns the name of the chain to which a verdict leads; empty if it is not one of "goto".
func chainOf(verdict []byte) (chain []byte) {
	for t, v, rest, ok := netlink.NextAttr(verdict); ok; t, v, rest, ok = netlink.NextAttr(rest) {
		switch t {
		case unix.NFTA_VERDICT_CODE:
			if int32(binary.BigEndian.Uint32(v)) != int32(expr.VerdictGoto) {
				return nil
			}
		case unix.NFTA_VERDICT_CHAIN:
			chain = bytes.TrimRight(v, "\x00")
		}
	}
	return chain
}

func addr4(a netip.Addr) []byte { b := a.As4(); return b[:] }

func addrOf(b []byte) netip.Addr { return netip.AddrFrom4([4]byte(b[:4])) }

// portKey returns the key of a port: each part is padded to four bytes.
func portKey(a netip.Addr, proto uint8, port uint16) []byte {
	b := append(make([]byte, 0, 16), addr4(a)...)
	b = append(b, proto, 0, 0, 0)
	return append(binary.BigEndian.AppendUint16(b, port), 0, 0)
}

func readPort(k []byte) (a netip.Addr, proto uint8, port uint16, ok bool) {
	if len(k) < 12 {
		return a, 0, 0, false
	}
	return addrOf(k), k[4], binary.BigEndian.Uint16(k[8:]), true
}

func addrPort8(a netip.AddrPort) []byte {
	return append(binary.BigEndian.AppendUint16(addr4(a.Addr()), a.Port()), 0, 0)
}

func readAddrPort(v []byte) (netip.AddrPort, bool) {
	if len(v) != 8 {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(addrOf(v), binary.BigEndian.Uint16(v[4:])), true
}
