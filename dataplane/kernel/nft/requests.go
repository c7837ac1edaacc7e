//go:build linux

package nft

import (
	"errors"
	"fmt"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/google/nftables"
	mdlayher "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The library is used for writing
// only: it lists the elements of sets twice, and cannot express everything that another program
// may add to our tables.

const (
	// nftBatch is the number of elements in one message, whose attributes have 64 kB.
	nftBatch = 500
	// nftBuffer holds the messages of one transaction, about 50 bytes an element.
	nftBuffer = 16 << 20

	family4, family6 = nftables.TableFamilyIPv4, nftables.TableFamilyIPv6
)

// nftSeen is the object of a table when it was read last, and nftables' generation then.
type nftSeen struct {
	objects    []dataplane.Object
	generation uint32
}

// listTable returns the object of a table, if the table exists. read reads it; that is not
// necessary if nothing in nftables has changed.
func (s *Tables) listTable(
	table string,
	seen *nftSeen,
	read func() (dataplane.Object, error),
) ([]dataplane.Object, error) {
	if table == "" {
		return nil, nil
	}
	generation := s.conn.Generation()
	if generation != 0 && generation == seen.generation {
		return seen.objects, nil
	}
	var out []dataplane.Object
	switch o, err := read(); {
	case err == nil:
		out = append(out, o)
	case !netlink.Gone(err) && !lacksFamily(err):
		return nil, fmt.Errorf("listing table %s: %w", table, err)
	}
	*seen = nftSeen{objects: out}
	if generation == s.conn.Generation() { // otherwise it changed meanwhile
		seen.generation = generation
	}
	return out, nil
}

// became notes that a transaction has changed the object that was read last into o. If that was not
// the only transaction since then, the table is read again: each adds one to the generation
// (nf_tables_commit in net/netfilter/nf_tables_api.c), and is carried out as a whole.
func (seen *nftSeen) became(o dataplane.Object, generation uint32) {
	if seen.generation != 0 && generation == seen.generation+1 {
		*seen = nftSeen{objects: []dataplane.Object{o}, generation: generation}
	}
}

// transaction returns a transaction, which collects changes. Its socket is opened when they
// are applied.
func transaction() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *mdlayher.Conn) error {
		return errors.Join(c.SetWriteBuffer(nftBuffer), c.SetReadBuffer(nftBuffer))
	}))
}

// flushTable applies a transaction. what it does to the table, and what it needs in the kernel, are
// for errors.
func (s *Tables) flushTable(tx *nftables.Conn, what, table, needs string) error {
	if err := s.home.Check(); err != nil {
		return fmt.Errorf("%s table %s: %w", what, table, err)
	}
	switch err := tx.Flush(); {
	case err == nil:
		return nil
	case lacksFamily(err) || errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%s table %s: %w: does the kernel have %s?", what, table, err, needs)
	default:
		return fmt.Errorf("%s table %s: %w", what, table, err)
	}
}

// lacksFamily reports whether err means that the kernel has no nftables, or none for the family.
func lacksFamily(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT)
}

// request sends a request about a table and returns the answers.
func request(
	conn *netlink.Conn,
	family nftables.TableFamily,
	typ, flags int,
	attributes ...any,
) ([][]byte, error) {
	q := netlink.NetfilterHeader(uint8(family))
	for i := 0; i < len(attributes); i += 2 {
		q = netlink.PutString(q, uint16(attributes[i].(int)), attributes[i+1].(string))
	}
	typ |= unix.NFNL_SUBSYS_NFTABLES << 8
	if flags == unix.NLM_F_DUMP {
		return conn.Dump(unix.NETLINK_NETFILTER, typ, q)
	}
	return conn.Request(unix.NETLINK_NETFILTER, typ, flags, q)
}
