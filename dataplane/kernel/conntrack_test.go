//go:build linux

package kernel

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"subctl/cable"
	"subctl/dataplane"

	"github.com/stretchr/testify/require"
	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The conntrack entries of a cluster that leaves, and of one that comes, are deleted on every
// change of the table, and no others.
func TestFlowsEnd(t *testing.T) {
	ns, h := node(t, dataplane.RouteOwner)
	ns.Run("ip addr add 192.0.2.1/24 dev lo; iptables -A OUTPUT -m conntrack --ctstate NEW") // tracks connections
	for _, n := range []string{"10.1.0.5", "10.2.0.5", "10.3.0.5"} {
		ns.Run("ip addr add " + n + "/32 dev lo")
	}
	flows := func() (out []string) {
		ns.Do(func() {
			all, err := vnl.ConntrackTableList(vnl.ConntrackTable, unix.AF_INET)
			require.NoError(t, err)
			for _, f := range all {
				out = append(out, strings.TrimSuffix(f.Forward.DstIP.String(), ".0.5"))
			}
		})
		return out
	}
	open := func() {
		ns.Do(func() {
			for i := 1; i <= 3; i++ {
				c, err := net.DialTimeout("udp4", fmt.Sprintf("10.%d.0.5:9", i), time.Second)
				require.NoError(t, err)
				_, err = c.Write([]byte("x"))
				require.NoError(t, err)
				require.NoError(t, c.Close())
			}
		})
		require.Subset(t, flows(), []string{"10.1", "10.2", "10.3"})
	}
	table := func(nets ...dataplane.ClusterNet) dataplane.State {
		return state(
			t,
			tables(cable.Antispoof{
				Table:           "submariner-route-antispoof",
				IsolatedDevices: []string{dataplane.IntraDevice},
				ClusterNetworks: nets,
			})...,
		)
	}
	west := dataplane.ClusterNet{Net: cidr("10.1.0.0/16"), Cluster: "west"}
	north := dataplane.ClusterNet{Net: cidr("10.2.0.0/16"), Cluster: "north"}
	south := dataplane.ClusterNet{Net: cidr("10.2.0.0/16"), Cluster: "south"}
	for _, c := range []struct {
		name       string
		have, want []dataplane.ClusterNet
		ends       []string
	}{
		{"nothing changes", []dataplane.ClusterNet{west}, []dataplane.ClusterNet{west}, nil},
		{"one leaves", []dataplane.ClusterNet{west, north}, []dataplane.ClusterNet{west}, []string{"10.2"}},
		{"the last leaves", []dataplane.ClusterNet{west}, nil, []string{"10.1"}},
		{"one comes", []dataplane.ClusterNet{west}, []dataplane.ClusterNet{west, south}, []string{"10.2"}},
		{
			"one takes the network of another",
			[]dataplane.ClusterNet{west, north},
			[]dataplane.ClusterNet{west, south},
			[]string{"10.2"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			settle(t, ns, h, table(c.have...))
			open()
			settle(t, ns, h, table(c.want...))
			for _, n := range []string{"10.1", "10.2", "10.3"} {
				ends := strings.Contains(strings.Join(c.ends, " "), n)
				require.Equal(t, !ends, strings.Contains(strings.Join(flows(), " "), n), "%s ends: %v", n, ends)
			}
		})
	}
	t.Run("the table was deleted by hand", func(t *testing.T) {
		settle(t, ns, h, table(west))
		open()
		ns.Run("nft delete table ip submariner-route-antispoof")
		settle(t, ns, h, table(west))
		require.Subset(t, flows(), []string{"10.1", "10.2", "10.3"})
	})
}
