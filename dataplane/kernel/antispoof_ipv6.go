//go:build linux

package kernel

import (
	"os"
	"slices"
	"sync"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// This file has the table of Antispoof for IPv6, which drops IPv6 packets that have arrived inside
// VXLAN packets. The setting disable_ipv6 of the devices would do the same, but cannot be written
// over netlink, and /proc/sys is read-only in containers. The table has the rules of one chain.

// families are the families of dataplane.AntispoofFamily.
var families = map[string]nftables.TableFamily{"ip": family4, "ip6": family6}

// ipv6Settings exists if the kernel receives IPv6 packets.
const ipv6Settings = "/proc/sys/net/ipv6/conf"

func hasIPv6() bool {
	_, err := os.Stat(ipv6Settings)
	return err == nil
}

// tablesOfIPv6 reports whether nftables has tables for IPv6. There is no other way to find out than
// to create one, which is gone before anybody sees it: the kernel finds no table of a family that
// it does not have.
var tablesOfIPv6 = sync.OnceValue(func() bool {
	tx, err := transaction()
	if err != nil {
		return true // what needs one will fail, with a better error
	}
	table := &nftables.Table{Family: family6, Name: probeTable}
	tx.AddTable(table)
	tx.DelTable(table)
	return !lacksFamily(tx.Flush())
})

const probeTable = "subctl-probe"

// has reports whether a table exists.
func (h *Host) has(family nftables.TableFamily, table string) (bool, error) {
	_, err := h.nft(family, unix.NFT_MSG_GETTABLE, 0, unix.NFTA_TABLE_NAME, table)
	if netlink.Gone(err) || lacksFamily(err) {
		return false, nil
	}
	return err == nil, err
}

// putIPv6 adds to a transaction what replaces the table, or removes it if the plan has no such
// rules. Without IPv6, or without it in nftables, there is none.
func (s antispoofs) putIPv6(tx *nftables.Conn, w dataplane.Antispoof) error {
	wanted := slices.Contains(w.Chains(), dataplane.AntispoofIPv6) && hasIPv6() && s.tablesOfIPv6()
	if !wanted {
		if has, err := s.has(family6, w.Table); !has {
			return err
		}
	}
	table := &nftables.Table{Family: family6, Name: w.Table}
	tx.AddTable(table) // so that there is one to remove
	tx.DelTable(table)
	if wanted {
		tx.AddTable(table)
		addRules(tx, table, w)
	}
	return nil
}

// lacksIPv6 ends the fingerprint of a table whose other half, for IPv6, is not as the same plan has
// it.
const lacksIPv6 = " without IPv6"

// wholeIPv6 reports whether the table is as the same plan has it that the table of IPv4 is of.
func (s antispoofs) wholeIPv6(o dataplane.Antispoof) (bool, error) {
	_, _, err := s.tableChain(family4, o.Table, dataplane.AntispoofArriving) // a plan has both chains, or none of them
	if err != nil && !netlink.Gone(err) {
		return false, err
	}
	wanted := err == nil && hasIPv6()
	seen, err := s.tableFingerprint(family6, o.Table,
		func(chain string) bool { return chain == dataplane.AntispoofIPv6 })
	if netlink.Gone(err) || lacksFamily(err) {
		return !wanted || !s.tablesOfIPv6(), nil
	}
	return wanted && seen == o.Seen, err
}
