//go:build linux

package kernel

import (
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
	text  func([]byte) string
	bytes func(string) ([]byte, error)
}

// datatypes are the types by their names in nft(8).
var datatypes = map[string]datatype{
	"ipv4_addr":  {nftables.TypeIPAddr, func(b []byte) string { return addrOf(b).String() }, addrBytes},
	"inet_proto": {nftables.TypeInetProto, func(b []byte) string { return decimal(uint32(b[0])) }, numberBytes(8)},
	"inet_service": {
		nftables.TypeInetService,
		func(b []byte) string { return decimal(uint32(binary.BigEndian.Uint16(b))) },
		numberBytes(16),
	},
	// of a raw payload expression: a number of four bytes, as packets have it
	"integer": {
		nftables.TypeInteger,
		func(b []byte) string { return fmt.Sprintf("0x%08x", binary.BigEndian.Uint32(b)) },
		func(text string) ([]byte, error) {
			n, err := strconv.ParseUint(text, 0, 32)
			return binary.BigEndian.AppendUint32(nil, uint32(n)), err
		},
	},
	"classid": {nftables.TypeClassID, classText, classBytes},
	"mark": {
		nftables.TypeMark,
		func(b []byte) string { return decimal(binary.NativeEndian.Uint32(b)) },
		numberBytes(32),
	},
}

// classText returns the priority of a packet as text: two hexadecimal numbers of 16 bits.
func classText(b []byte) string {
	n := binary.NativeEndian.Uint32(b)
	return fmt.Sprintf("%x:%x", n>>16, n&0xffff)
}

func classBytes(text string) ([]byte, error) {
	high, low, _ := strings.Cut(text, ":")
	major, err := strconv.ParseUint(high, 16, 16)
	if err != nil {
		return nil, err
	}
	minor, err := strconv.ParseUint(low, 16, 16)
	return native(uint32(major<<16 | minor)), err
}

func decimal(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// addrBytes returns the bytes of an IPv4 address.
func addrBytes(text string) ([]byte, error) {
	ip, err := netip.ParseAddr(text)
	if err == nil && !ip.Is4() {
		err = fmt.Errorf("%v is no IPv4 address", ip)
	}
	return ip.AsSlice(), err
}

// numberBytes returns a function that returns the bytes of a number of some bits: as packets have
// it, or as marks do if it has 32.
func numberBytes(bits int) func(string) ([]byte, error) {
	return func(text string) ([]byte, error) {
		n, err := strconv.ParseUint(text, 10, bits)
		switch bits {
		case 8:
			return []byte{byte(n)}, err
		case 16:
			return binary.BigEndian.AppendUint16(nil, uint16(n)), err
		}
		return native(uint32(n)), err
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

// concatenated returns the bytes of a value of several types, or of one.
func concatenated(types, text string) ([]byte, error) {
	names := strings.Split(types, " . ")
	parts := strings.Split(text, " . ")
	if len(names) != len(parts) {
		return nil, fmt.Errorf("%q is no %s", text, types)
	}
	var out []byte
	for i, name := range names {
		b, err := datatypes[name].bytes(parts[i])
		if err != nil {
			return nil, err
		}
		out = append(out, b...)
		if len(names) > 1 {
			out = append(out, make([]byte, -len(b)&3)...)
		}
	}
	return out, nil
}

// separated returns a value of several types, or of one, as text.
func separated(types string, b []byte) (string, error) {
	var out []string
	for name := range strings.SplitSeq(types, " . ") {
		t, known := datatypes[name]
		n := int(t.Bytes)
		if !known || len(b) < n {
			return "", errForeign
		}
		out = append(out, t.text(b[:n]))
		b = b[min(len(b), (n+3)&^3):]
	}
	return strings.Join(out, " . "), nil
}

// libraryType returns the type of a set for the library.
func libraryType(types string) (nftables.SetDatatype, error) {
	var all []nftables.SetDatatype
	for name := range strings.SplitSeq(types, " . ") {
		t, known := datatypes[name]
		if !known {
			return t.SetDatatype, fmt.Errorf("no such type of elements: %q", name)
		}
		all = append(all, t.SetDatatype)
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return nftables.ConcatSetType(all...)
}

// alterElements adds and removes single elements of the sets of a table, which are otherwise as
// planned.
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
		key, value, _ := strings.Cut(w.Type, " : ")
		set := &nftables.Set{Table: table, Name: w.Name, Interval: w.Flags == "interval", IsMap: value != ""}
		if set.KeyType, err = libraryType(key); err != nil {
			return err
		}
		switch {
		case value == verdict:
			set.DataType = nftables.TypeVerdict
		case value != "":
			if set.DataType, err = libraryType(value); err != nil {
				return err
			}
		}
		if err := errors.Join(
			elementsOf(w, gone, func(e []nftables.SetElement) error { return tx.SetDeleteElements(set, e) }),
			elementsOf(w, added, func(e []nftables.SetElement) error {
				return tx.SetAddElements(set, e)
			})); err != nil {
			return err
		}
	}
	return s.flushTable(tx, "changing elements of", t.Name, "nftables")
}

// elementsOf calls do with elements of a set, some at a time.
func elementsOf(s dataplane.RuleSet, texts []string, do func([]nftables.SetElement) error) error {
	for batch := range slices.Chunk(texts, nftBatch) {
		out := make([]nftables.SetElement, 0, 2*len(batch))
		for _, text := range batch {
			e, err := elementOfText(s, text)
			if err != nil {
				return fmt.Errorf("element %q of %s: %w", text, s.Name, err)
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

// elementOfText returns an element, or the two that an interval consists of.
func elementOfText(s dataplane.RuleSet, text string) ([]nftables.SetElement, error) {
	keyType, valueType, _ := strings.Cut(s.Type, " : ")
	text, comment, _ := strings.Cut(text, elementComment)
	key, value, _ := strings.Cut(text, " : ")
	e := nftables.SetElement{Comment: strings.Trim(comment, `"`)}
	var err error
	switch {
	case valueType == verdict:
		e.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: strings.TrimPrefix(value, "goto ")}
	case valueType != "":
		if e.Val, err = concatenated(valueType, value); err != nil {
			return nil, err
		}
	}
	if s.Flags != "interval" {
		e.Key, err = concatenated(keyType, key)
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
			}
		}
	}
	if s.flags&setInterval != 0 {
		s.Flags = "interval"
	}
	s.Type = typeNames(key)
	switch {
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
	msgs, err := s.nft(nftables.TableFamily(nftFamilies[t.Family]), unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP,
		unix.NFTA_SET_ELEM_LIST_TABLE, t.Name, unix.NFTA_SET_ELEM_LIST_SET, set.Name)
	if err != nil {
		return err
	}
	keyType, valueType, _ := strings.Cut(set.Type, " : ")
	if set.Flags == "interval" {
		intervals(msgs, func(n netip.Prefix, b bound) {
			text := n.String()
			if valueType != "" {
				value, err := separated(valueType, b.value)
				if err != nil {
					set.Seen = dataplane.Foreign
				}
				text += " : " + value
			}
			if b.comment != "" {
				text += fmt.Sprintf("%s%q", elementComment, b.comment)
			}
			if !n.IsValid() {
				set.Seen = dataplane.Foreign
			}
			set.Elements = append(set.Elements, text)
		})
		slices.Sort(set.Elements)
		return nil
	}
	whole := mapEntries(msgs, func(key, value []byte) bool {
		text, err := separated(keyType, key)
		switch {
		case valueType == verdict:
			text += " : goto " + string(chainOf(value))
		case valueType != "":
			to, err := separated(valueType, value)
			if err != nil {
				return false
			}
			text += " : " + to
		}
		set.Elements = append(set.Elements, text)
		return err == nil
	})
	if !whole {
		set.Seen = dataplane.Foreign
	}
	slices.Sort(set.Elements)
	return nil
}
