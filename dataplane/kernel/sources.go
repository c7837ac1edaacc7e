//go:build linux

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/dataplane"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// sources is the owner's table of nftables: all that is in it is ours. Each rule
// has a comment that says which network it is for, from which the plan is known
// again; packets do not pay for it.
//
// The library writes. It does not read: it would list the elements of sets twice,
// and knows no words for some of what other people may put in our table.
type sources struct{ *Host }

const (
	sourcesSet   = "remote"
	sourcesChain = "postrouting"
	// sourcesHolds is how many sets and chains are in the table.
	sourcesHolds = 2
	// nftBatch is how many elements go into one message, whose attributes have 64 kB.
	nftBatch = 500
	// nftBuffer holds the messages of one transaction, about 50 bytes an element.
	nftBuffer = 16 << 20
)

// transaction collects changes. Its socket is opened when they are made.
func transaction() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetWriteBuffer(nftBuffer), c.SetReadBuffer(nftBuffer))
	}))
}

func (s sources) list() ([]dataplane.Object, error) {
	if s.owner.NFTable == "" {
		return nil, nil
	}
	gen := s.conn.generation()
	if gen != 0 && gen == s.ipt.sourcesGen {
		return s.ipt.sourcesSeen, nil
	}
	var out []dataplane.Object
	switch o, err := s.read(); {
	case err == nil:
		out = append(out, o)
	case !gone(err) && !without4(err):
		return nil, fmt.Errorf("listing table %s: %w", s.owner.NFTable, err)
	}
	s.ipt.sourcesSeen, s.ipt.sourcesGen = out, 0
	if gen == s.conn.generation() { // else it changed while we were reading
		s.ipt.sourcesGen = gen
	}
	return out, nil
}

// without4 says that the kernel has no nftables, or none for IPv4.
func without4(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT)
}

// read reads the table. One that holds anything else than a plan has the zero
// Prefix in Local, as no plan does.
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
	msgs, err := s.nft(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, unix.NFTA_RULE_TABLE, o.Table)
	if err != nil {
		return o, err
	}
	for i, m := range msgs {
		said := ""
		for t, v := range attrs(m[nl.SizeofNfgenmsg:]) {
			if t == unix.NFTA_RULE_USERDATA {
				said, _ = userdata.GetString(v, userdata.TypeComment)
			}
		}
		p, err := netip.ParsePrefix(strings.TrimPrefix(said, [...]string{"from ", "to "}[i%2]))
		switch {
		case err != nil:
			return blank, nil
		case i%2 == 0:
			o.Local = append(o.Local, p)
		case p != o.Local[i/2]:
			return blank, nil
		}
	}
	if len(msgs)%2 != 0 {
		return blank, nil
	}
	msgs, err = s.nft(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, unix.NFTA_SET_ELEM_LIST_TABLE, o.Table,
		unix.NFTA_SET_ELEM_LIST_SET, sourcesSet)
	o.Remote = readNets(msgs)
	return o, err
}

// intact says whether the table holds our set and chain, and nothing else.
func (s sources) intact() (bool, error) {
	msgs, err := s.nft(unix.NFT_MSG_GETTABLE, 0, unix.NFTA_TABLE_NAME, s.owner.NFTable)
	if err != nil {
		return false, err
	}
	for t, v := range attrs(msgs[0][nl.SizeofNfgenmsg:]) {
		switch {
		case t == unix.NFTA_TABLE_FLAGS && binary.BigEndian.Uint32(v) != 0: // dormant
			return false, nil
		case t == unix.NFTA_TABLE_USE && binary.BigEndian.Uint32(v) != sourcesHolds:
			return false, nil
		}
	}
	msgs, err = s.nft(unix.NFT_MSG_GETCHAIN, 0, unix.NFTA_CHAIN_TABLE, s.owner.NFTable, unix.NFTA_CHAIN_NAME, sourcesChain)
	if err != nil {
		return false, orGone(err)
	}
	hooked := false
	for t, v := range attrs(msgs[0][nl.SizeofNfgenmsg:]) {
		switch t {
		case unix.NFTA_CHAIN_POLICY:
			if binary.BigEndian.Uint32(v) != uint32(nftables.ChainPolicyAccept) {
				return false, nil
			}
		case unix.NFTA_CHAIN_HOOK:
			hooked = true
		}
	}
	return hooked, nil
}

// nft sends a question about a table and returns the answers.
func (s sources) nft(typ, flags int, attributes ...any) ([][]byte, error) {
	q := nfgenmsg(unix.AF_INET)
	for i := 0; i < len(attributes); i += 2 {
		q = putString(q, uint16(attributes[i].(int)), attributes[i+1].(string))
	}
	typ |= unix.NFNL_SUBSYS_NFTABLES << 8
	if flags == unix.NLM_F_DUMP {
		return s.conn.dump(unix.NETLINK_NETFILTER, typ, q)
	}
	return s.conn.request(unix.NETLINK_NETFILTER, typ, flags, q)
}

// readNets reads the elements of a set of intervals: each is the first address of a
// network, or the first one behind.
func readNets(msgs [][]byte) (nets []netip.Prefix) {
	type bound struct {
		at  uint32
		end bool
	}
	var bounds []bound
	for _, m := range msgs {
		for t, list := range attrs(m[nl.SizeofNfgenmsg:]) {
			if t != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				continue
			}
			for _, elem := range attrs(list) {
				var b bound
				for t, v := range attrs(elem) {
					switch t {
					case unix.NFTA_SET_ELEM_KEY:
						for _, key := range attrs(v) {
							b.at = binary.BigEndian.Uint32(key)
						}
					case unix.NFTA_SET_ELEM_FLAGS:
						b.end = binary.BigEndian.Uint32(v)&unix.NFT_SET_ELEM_INTERVAL_END != 0
					}
				}
				bounds = append(bounds, b)
			}
		}
	}
	slices.SortFunc(bounds, func(a, b bound) int {
		if a.at == b.at && a.end != b.end { // one ends where the next begins
			if a.end {
				return -1
			}
			return 1
		}
		return int(int64(a.at) - int64(b.at))
	})
	for i, b := range bounds {
		if b.end {
			continue
		}
		var p netip.Prefix // zero: no network
		if i+1 < len(bounds) && bounds[i+1].end {
			p = network(b.at, bounds[i+1].at)
		}
		nets = append(nets, p)
	}
	return nets
}

// network is from first up to, but not, end; the zero Prefix if that is no network.
func network(first, end uint32) netip.Prefix {
	for bits := range 33 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, first))), bits)
		if uint64(end-first) == 1<<(32-bits) && p == p.Masked() {
			return p
		}
	}
	return netip.Prefix{}
}

// put changes elements one by one if nothing else is to do, or makes the whole
// table anew: either way in one transaction.
func (s sources) put(_, want dataplane.Object) error {
	w := want.(dataplane.Sources)
	t := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: w.Table}
	set := &nftables.Set{Table: t, Name: sourcesSet, KeyType: nftables.TypeIPAddr, Interval: true}
	tx, err := transaction()
	if err != nil {
		return fmt.Errorf("changing table %s: %w", w.Table, err)
	}
	have, err := s.read()
	if err == nil && slices.Equal(have.Local, w.Local) && !slices.Contains(have.Remote, netip.Prefix{}) {
		if err := errors.Join(
			elements(without(have.Remote, w.Remote), func(e []nftables.SetElement) error { return tx.SetDeleteElements(set, e) }),
			elements(without(w.Remote, have.Remote), func(e []nftables.SetElement) error { return tx.SetAddElements(set, e) }),
		); err != nil {
			return fmt.Errorf("changing table %s: %w", w.Table, err)
		}
		return s.flush(tx, "changing", w.Table)
	}
	tx.AddTable(t) // so that there is one to remove
	tx.DelTable(t)
	tx.AddTable(t)
	priority, hook := nftables.ChainPriority(dataplane.SourcesPriority), nftables.ChainHookPostrouting
	chain := tx.AddChain(&nftables.Chain{Name: sourcesChain, Table: t, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: &priority})
	err = errors.Join(tx.AddSet(set, nil),
		elements(w.Remote, func(e []nftables.SetElement) error { return tx.SetAddElements(set, e) }))
	if err != nil {
		return fmt.Errorf("adding table %s: %w", w.Table, err)
	}
	for _, l := range w.Local {
		tx.AddRule(&nftables.Rule{Table: t, Chain: chain, UserData: userdata.AppendString(nil, userdata.TypeComment, "from "+l.String()),
			Exprs: slices.Concat(within(srcOffset, l), lookup(dstOffset, set), keep)})
		tx.AddRule(&nftables.Rule{Table: t, Chain: chain, UserData: userdata.AppendString(nil, userdata.TypeComment, "to "+l.String()),
			Exprs: slices.Concat(lookup(srcOffset, set), within(dstOffset, l), keep)})
	}
	return s.flush(tx, "adding", w.Table)
}

func (s sources) flush(tx *nftables.Conn, what, table string) error {
	if ns, err := threadNetns(); err != nil || ns != s.ipt.netns {
		return fmt.Errorf("%s table %s: the thread is in network namespace %s, and the objects are in %s (%w)", what, table, ns, s.ipt.netns, err)
	}
	switch err := tx.Flush(); {
	case err == nil:
		return nil
	case without4(err):
		return fmt.Errorf("%s table %s: %w: does the kernel have nftables with NAT?", what, table, err)
	default:
		return fmt.Errorf("%s table %s: %w", what, table, err)
	}
}

func (s sources) del(old dataplane.Object) error {
	name := old.(dataplane.Sources).Table
	if _, err := s.nft(unix.NFT_MSG_GETTABLE, 0, unix.NFTA_TABLE_NAME, name); gone(err) {
		return nil
	}
	tx, err := transaction()
	if err != nil {
		return fmt.Errorf("removing table %s: %w", name, err)
	}
	tx.DelTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: name})
	return s.flush(tx, "removing", name)
}

// elements hands networks on as elements of a set of intervals, not too many at once.
func elements(nets []netip.Prefix, do func([]nftables.SetElement) error) error {
	for batch := range slices.Chunk(nets, nftBatch) {
		var out []nftables.SetElement
		for _, n := range batch {
			first := n.Addr().As4()
			end := binary.BigEndian.Uint32(first[:]) + 1<<(32-n.Bits())
			out = append(out, nftables.SetElement{Key: first[:]},
				nftables.SetElement{Key: binary.BigEndian.AppendUint32(nil, end), IntervalEnd: true})
		}
		if err := do(out); err != nil {
			return err
		}
	}
	return nil
}

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
