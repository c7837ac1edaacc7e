//go:build linux

package nft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// This file reads and writes the elements of sets of dataplane.Ruleset, between their bytes in the
// kernel and the notation of nft(8).

// datatype is a type of which elements consist. In an element of several, each occupies a multiple
// of four bytes.
type datatype struct {
	nftables.SetDatatype
	text  func(to, b []byte) []byte
	bytes func(to []byte, text string) ([]byte, error)
}

// datatypes are the types by their names in nft(8).
var datatypes = map[string]datatype{
	"ipv4_addr": {
		nftables.TypeIPAddr,
		func(to, b []byte) []byte { return netip.AddrFrom4([4]byte(b)).AppendTo(to) },
		addrBytes,
	},
	"inet_proto": {
		nftables.TypeInetProto, func(to, b []byte) []byte { return decimal(to, uint32(b[0])) }, numberBytes(8),
	},
	"inet_service": {
		nftables.TypeInetService,
		func(to, b []byte) []byte { return decimal(to, uint32(binary.BigEndian.Uint16(b))) },
		numberBytes(16),
	},
	"mark":    {nftables.TypeMark, nativeText, numberBytes(32)},
	"classid": {nftables.TypeClassID, classText, classBytes},
}

// typeofs are the types of sets with a RuleSet.Typeof, which nft(8) calls "integer": "integer" is a
// number in a packet, "number" one of the node, such as a hash.
var typeofs = map[string]datatype{
	"integer": {
		nftables.TypeInteger,
		func(to, b []byte) []byte { return fmt.Appendf(to, "0x%08x", binary.BigEndian.Uint32(b)) },
		func(to []byte, text string) ([]byte, error) {
			n, err := strconv.ParseUint(text, 0, 32)
			return binary.BigEndian.AppendUint32(to, uint32(n)), err
		},
	},
	"number": {nftables.TypeInteger, nativeText, numberBytes(32)},
}

func decimal(to []byte, n uint32) []byte { return strconv.AppendUint(to, uint64(n), 10) }

// classText appends the priority of a packet as text: two hexadecimal numbers of 16 bits.
func classText(to, b []byte) []byte {
	n := binary.NativeEndian.Uint32(b)
	return fmt.Appendf(to, "%x:%x", n>>16, n&0xffff)
}

func classBytes(to []byte, text string) ([]byte, error) {
	high, low, _ := strings.Cut(text, ":")
	major, err := strconv.ParseUint(high, 16, 16)
	if err != nil {
		return to, err
	}
	minor, err := strconv.ParseUint(low, 16, 16)
	return binary.NativeEndian.AppendUint32(to, uint32(major<<16|minor)), err
}

func nativeText(to, b []byte) []byte { return decimal(to, binary.NativeEndian.Uint32(b)) }

// addrBytes appends the bytes of an IPv4 address.
func addrBytes(to []byte, text string) ([]byte, error) {
	ip, err := netip.ParseAddr(text)
	if err == nil && !ip.Is4() {
		err = fmt.Errorf("%v is no IPv4 address", ip)
	}
	if err != nil {
		return to, err
	}
	b := ip.As4()
	return append(to, b[:]...), nil
}

// numberBytes returns a function that appends the bytes of a number of some bits: as packets have
// it, or as marks do if it has 32.
func numberBytes(bits int) func([]byte, string) ([]byte, error) {
	return func(to []byte, text string) ([]byte, error) {
		n, err := strconv.ParseUint(text, 10, bits)
		switch bits {
		case 8:
			return append(to, byte(n)), err
		case 16:
			return binary.BigEndian.AppendUint16(to, uint16(n)), err
		}
		return binary.NativeEndian.AppendUint32(to, uint32(n)), err
	}
}

// verdict is the type of elements that lead to a chain, and dataVerdict what the kernel calls it
// (NFT_DATA_VERDICT, linux/netfilter/nf_tables.h).
const (
	verdict     = "verdict"
	dataVerdict = 0xffffff00
)

// errForeign is the error about an element that no plan can have.
var errForeign = errors.New("no element of ours")

// concatenation is the types of a key or of a value.
type concatenation []datatype

// concatenationOf returns the types of the given names; none for "" and for a verdict.
func concatenationOf(names string) (out concatenation, err error) {
	if names == "" || names == verdict {
		return nil, nil
	}
	for name := range strings.SplitSeq(names, " . ") {
		t, known := datatypes[name]
		if !known {
			t, known = typeofs[name]
		}
		if !known {
			return nil, fmt.Errorf("no such type of elements: %q", name)
		}
		out = append(out, t)
	}
	return out, nil
}

// bytes returns the bytes of a key or a value.
func (c concatenation) bytes(text string) (out []byte, err error) {
	rest := text
	more := true
	for _, t := range c {
		var part string
		if !more {
			return nil, fmt.Errorf("%q has too few parts", text)
		}
		part, rest, more = strings.Cut(rest, " . ")
		if out, err = t.bytes(out, part); err != nil {
			return nil, err
		}
		for len(c) > 1 && len(out)%4 > 0 {
			out = append(out, 0)
		}
	}
	if more {
		return nil, fmt.Errorf("%q has too many parts", text)
	}
	return out, nil
}

// text appends the text of a key or a value.
func (c concatenation) text(to, b []byte) ([]byte, error) {
	for i, t := range c {
		n := int(t.Bytes)
		if len(b) < n {
			return to, errForeign
		}
		if i > 0 {
			to = append(to, " . "...)
		}
		to = t.text(to, b[:n])
		b = b[min(len(b), (n+3)&^3):]
	}
	return to, nil
}

// library returns the type for the library.
func (c concatenation) library() (nftables.SetDatatype, error) {
	if len(c) == 1 {
		return c[0].SetDatatype, nil
	}
	all := make([]nftables.SetDatatype, len(c))
	for i, t := range c {
		all[i] = t.SetDatatype
	}
	return nftables.ConcatSetType(all...)
}

// elementType is the type of the elements of a set.
type elementType struct {
	key, value concatenation
	leads      bool // to chains
	interval   bool
}

func elementTypeOf(s dataplane.RuleSet) (t elementType, err error) {
	key, value, _ := strings.Cut(s.Type, " : ")
	t.leads = value == verdict
	t.interval = s.Flags == "interval"
	if t.key, err = concatenationOf(key); err == nil {
		t.value, err = concatenationOf(value)
	}
	return t, err
}

// alterElements adds and removes single elements of the sets of a table, which are otherwise as
// planned, and adds rules with an Inner at the end of their chains.
func (s rulesets) alterElements(t dataplane.Nftable, have, want dataplane.Ruleset) error {
	tx, err := transaction()
	if err != nil {
		return err
	}
	table := &nftables.Table{Family: nftables.TableFamily(nftFamilies[t.Family]), Name: t.Name}
	for _, name := range want.Forgotten(have) {
		tx.FlushSet(&nftables.Set{Table: table, Name: name})
	}
	for i, w := range want.Sets {
		gone := dataplane.WithoutElements(have.Sets[i].Elements, w.Elements)
		added := dataplane.WithoutElements(w.Elements, have.Sets[i].Elements)
		if len(gone) == 0 && len(added) == 0 {
			continue
		}
		typ, err := elementTypeOf(w)
		if err != nil {
			return err
		}
		set := &nftables.Set{Table: table, Name: w.Name, Interval: typ.interval, IsMap: w.IsMap()}
		if set.KeyType, err = typ.key.library(); err != nil {
			return err
		}
		switch {
		case typ.leads:
			set.DataType = nftables.TypeVerdict
		case len(typ.value) > 0:
			if set.DataType, err = typ.value.library(); err != nil {
				return err
			}
		}
		if err := errors.Join(
			typ.batches(w.Name, gone, func(e []nftables.SetElement) error { return tx.SetDeleteElements(set, e) }),
			typ.batches(w.Name, added, func(e []nftables.SetElement) error {
				return tx.SetAddElements(set, e)
			})); err != nil {
			return err
		}
	}
	for i, c := range want.Chains {
		for _, rule := range c.Rules[min(len(c.Rules), len(have.Chains[i].Rules)):] {
			addInner(tx, &nftables.Chain{Table: table, Name: c.Name}, rule)
		}
	}
	return s.flushTable(tx, "changing elements of", t.Name, "nftables")
}

// batches calls do with elements, some at a time.
func (t elementType) batches(set string, texts []string, do func([]nftables.SetElement) error) error {
	for batch := range slices.Chunk(texts, nftBatch) {
		out := make([]nftables.SetElement, 0, 2*len(batch))
		for _, text := range batch {
			e, err := t.element(text)
			if err != nil {
				return fmt.Errorf("element %q of %s: %w", text, set, err)
			}
			out = append(out, e...)
		}
		if err := do(out); err != nil {
			return err
		}
	}
	return nil
}

// elementComment separates an element from its comment.
const elementComment = " comment "

// element returns an element, or the two that an interval consists of.
func (t elementType) element(text string) ([]nftables.SetElement, error) {
	text, comment, _ := strings.Cut(text, elementComment)
	key, value, _ := strings.Cut(text, " : ")
	e := nftables.SetElement{Comment: strings.Trim(comment, `"`)}
	var err error
	switch {
	case t.leads:
		e.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: strings.TrimPrefix(value, "goto ")}
	case len(t.value) > 0:
		if e.Val, err = t.value.bytes(value); err != nil {
			return nil, err
		}
	}
	if !t.interval {
		e.Key, err = t.key.bytes(key)
		return []nftables.SetElement{e}, err
	}
	n, err := netip.ParsePrefix(key)
	if err != nil {
		return nil, err
	}
	e.Key = n.Addr().AsSlice()
	end := binary.BigEndian.Uint32(e.Key) + 1<<(32-n.Bits())
	return []nftables.SetElement{e, {Key: binary.BigEndian.AppendUint32(nil, end), IntervalEnd: true}}, nil
}

// observedSet is a set with what its elements need.
type observedSet struct {
	dataplane.RuleSet
	flags uint32
}

// readSet reads a set without its elements.
func readSet(m []byte) (s observedSet) {
	s.Seen = dataplane.Foreign
	var key, value uint32
	isMap := false
	types := ""
	for t, v := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
		switch t {
		case unix.NFTA_SET_NAME:
			s.Name = netlink.Text(v)
		case unix.NFTA_SET_FLAGS:
			s.flags = binary.BigEndian.Uint32(v)
		case unix.NFTA_SET_KEY_TYPE:
			key = binary.BigEndian.Uint32(v)
		case unix.NFTA_SET_DATA_TYPE:
			value = binary.BigEndian.Uint32(v)
			isMap = true
		case unix.NFTA_SET_USERDATA:
			if said, ok := userdata.GetString(v, userdata.NFTNL_UDATA_SET_COMMENT); ok {
				s.Seen = dataplane.CommentDigest(said)
				types, _, _ = strings.Cut(said, "#")
			}
		}
	}
	if s.flags&setInterval != 0 {
		s.Flags = "interval"
	}
	s.Type = typeNames(key)
	switch {
	case types != "":
		s.Type = strings.TrimSpace(types)
	case isMap && value == dataVerdict:
		s.Type += " : " + verdict
	case isMap:
		s.Type += " : " + typeNames(value)
	}
	return s
}

// typeNames returns the names of the types of a set: each has six bits (TYPE_BITS of nft(8),
// include/datatype.h).
func typeNames(types uint32) string {
	var out []string
	for ; types > 0; types >>= nftables.SetConcatTypeBits {
		name := "unknown"
		for n, t := range datatypes {
			if t.GetNFTMagic() == types&nftables.SetConcatTypeMask {
				name = n
			}
		}
		out = append(out, name)
	}
	slices.Reverse(out)
	return strings.Join(out, " . ")
}

// readElements reads the elements of a set. If there is one that no plan can have, the set counts
// as another program's.
func (s rulesets) readElements(t dataplane.Nftable, set *observedSet) error {
	msgs, err := request(s.conn, nftables.TableFamily(nftFamilies[t.Family]), unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP,
		unix.NFTA_SET_ELEM_LIST_TABLE, t.Name, unix.NFTA_SET_ELEM_LIST_SET, set.Name)
	if err != nil {
		return err
	}
	typ, err := elementTypeOf(set.RuleSet)
	if typ.interval {
		intervals(msgs, func(n netip.Prefix, b bound) {
			text := n.AppendTo(nil)
			if len(typ.value) > 0 && err == nil {
				text, err = typ.value.text(append(text, " : "...), b.value)
			}
			if b.comment != "" {
				text = fmt.Appendf(text, "%s%q", elementComment, b.comment)
			}
			if !n.IsValid() {
				err = errForeign
			}
			set.Elements = append(set.Elements, string(text))
		})
		if err != nil {
			set.Seen = dataplane.Foreign
		}
		slices.Sort(set.Elements)
		return nil
	}
	var texts []byte // one after the other: a map may have 25,000 elements
	var ends []int
	whole := err == nil && mapEntries(msgs, func(key, value []byte) bool {
		texts, err = typ.key.text(texts, key)
		switch {
		case err != nil:
			return false
		case typ.leads:
			texts = append(append(texts, " : goto "...), chainOf(value)...)
		case len(typ.value) > 0:
			texts, err = typ.value.text(append(texts, " : "...), value)
		}
		ends = append(ends, len(texts))
		return err == nil
	})
	if !whole {
		set.Seen = dataplane.Foreign
	}
	all := string(texts)
	set.Elements = make([]string, len(ends))
	begin := 0
	for i, end := range ends {
		set.Elements[i] = all[begin:end]
		begin = end
	}
	slices.Sort(set.Elements)
	return nil
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
