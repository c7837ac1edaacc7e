//go:build linux

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	mdlayher "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// sources is the owner's table of nftables: everything in it is ours. Each rule has a
// comment with the network that it is for, which identifies the plan; comments cost packets
// nothing.
//
// The library is used for writing only: it lists the elements of sets twice, and cannot
// express everything that another program may add to our table.
type sources struct{ *Host }

const (
	sourcesSet   = "remote"
	sourcesChain = "postrouting"
	// sourcesHolds is the number of sets and chains in the table.
	sourcesHolds = 2
	// nftBatch is the number of elements in one message, whose attributes have 64 kB.
	nftBatch = 500
	// nftBuffer holds the messages of one transaction, about 50 bytes an element.
	nftBuffer = 16 << 20
)

// transaction returns a transaction, which collects changes. Its socket is opened when they
// are applied.
func transaction() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *mdlayher.Conn) error {
		return errors.Join(c.SetWriteBuffer(nftBuffer), c.SetReadBuffer(nftBuffer))
	}))
}

func (s sources) list() ([]dataplane.Object, error) {
	if s.owner.NFTable == "" {
		return nil, nil
	}
	gen := s.conn.Generation()
	if gen != 0 && gen == s.ipt.sourcesGen {
		return s.ipt.sourcesSeen, nil
	}
	var out []dataplane.Object
	switch o, err := s.read(); {
	case err == nil:
		out = append(out, o)
	case !netlink.Gone(err) && !without4(err):
		return nil, fmt.Errorf("listing table %s: %w", s.owner.NFTable, err)
	}
	s.ipt.sourcesSeen, s.ipt.sourcesGen = out, 0
	if gen == s.conn.Generation() { // otherwise it changed meanwhile
		s.ipt.sourcesGen = gen
	}
	return out, nil
}

// put adds and removes single elements if nothing else has changed, or else recreates the
// whole table: either way in one transaction.
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
		tx.AddRule(&nftables.Rule{
			Table: t, Chain: chain, UserData: userdata.AppendString(nil, userdata.TypeComment, "from "+l.String()),
			Exprs: slices.Concat(within(srcOffset, l), lookup(dstOffset, set), keep),
		})
		tx.AddRule(&nftables.Rule{
			Table: t, Chain: chain, UserData: userdata.AppendString(nil, userdata.TypeComment, "to "+l.String()),
			Exprs: slices.Concat(lookup(srcOffset, set), within(dstOffset, l), keep),
		})
	}
	return s.flush(tx, "adding", w.Table)
}

func (s sources) flush(tx *nftables.Conn, what, table string) error {
	if ns, err := netlink.Namespace(); err != nil || ns != s.ipt.netns {
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
	if _, err := s.nft(unix.NFT_MSG_GETTABLE, 0, unix.NFTA_TABLE_NAME, name); netlink.Gone(err) {
		return nil
	}
	tx, err := transaction()
	if err != nil {
		return fmt.Errorf("removing table %s: %w", name, err)
	}
	tx.DelTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: name})
	return s.flush(tx, "removing", name)
}

// elements calls do with networks as elements of a set of intervals, some at a time.
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
