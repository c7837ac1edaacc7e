//go:build linux

package conntrack

import (
	"testing"

	"subctl/dataplane/kernel/netlink"

	"github.com/stretchr/testify/require"
)

// open returns the connection tracking of the calling thread's network namespace.
func open(t testing.TB) *Table {
	t.Helper()
	conn, err := netlink.Dial()
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	table, err := New(conn)
	require.NoError(t, err)
	t.Cleanup(table.Close)
	return table
}
