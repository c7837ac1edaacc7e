//go:build linux

package nft

import (
	"os"
	"sync"

	"github.com/google/nftables"
)

// LacksIPv6 reports whether the kernel receives IPv6 packets, and nftables has no tables for them.
func LacksIPv6() bool { return hasIPv6() && !tablesOfIPv6() }

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

// probeTable is the name of the table of tablesOfIPv6.
const probeTable = "subctl-probe"
