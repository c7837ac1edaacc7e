//go:build linux

package kernel

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
)

// node is a namespace with an uplink and a Host in it.
func node(t testing.TB, owner dataplane.Owner) (*nstest.NS, *Host) {
	t.Helper()
	nstest.WireGuard(t)
	ns := nstest.New(t, "node")
	ns.Private(nstest.UAPIDir)
	// which ends its process
	t.Cleanup(func() { ns.Run("ip link del " + dataplane.WireGuardDevice + " 2>/dev/null || true") })
	ns.Run(
		"sysctl -qw net.ipv6.conf.default.disable_ipv6=1 && ip link add eth0 type veth peer name eth1 && ip link set eth1 up && ip addr add 172.18.0.2/24 dev eth0 && ip link set eth0 up")
	ns.Run("ip route add default via 172.18.0.1")
	// the kernel notices later, and adds addresses then
	ns.Run("timeout 20 sh -c 'until [ $(ip link show up | grep -c \"state UP\") = 2 ]; do sleep 0.01; done'")
	return ns, host(t, ns, owner)
}

func host(t testing.TB, ns *nstest.NS, owner dataplane.Owner) (h *Host) {
	t.Helper()
	ns.Do(func() {
		var err error
		h, err = New(owner)
		require.NoError(t, err)
	})
	t.Cleanup(h.Close)
	return h
}

// settle makes the namespace hold want, and returns the steps that were taken.
func settle(t testing.TB, ns *nstest.NS, h *Host, want dataplane.State) (ops []dataplane.Op) {
	t.Helper()
	ns.Do(func() {
		var err error
		ops, err = dataplane.Sync(context.Background(), h, want)
		require.NoError(t, err)
	})
	return ops
}

func look(t testing.TB, ns *nstest.NS, h *Host) (s dataplane.State) {
	t.Helper()
	ns.Do(func() {
		var err error
		s, err = h.Observe(context.Background())
		require.NoError(t, err)
	})
	return s
}

func state(t testing.TB, objs ...dataplane.Object) dataplane.State {
	t.Helper()
	s, err := dataplane.Of(objs...)
	require.NoError(t, err)
	return s
}

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func cidr(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// one returns an object of every kind that a gateway may hold.
func one() []dataplane.Object {
	const dev, mac, peer = dataplane.VXLANDevice, "0a:58:ac:12:00:02", "0a:58:ac:12:00:03"
	return append(tables(antispoof()), []dataplane.Object{
		dataplane.Set{Name: "SUBMARINER-GW-REMOTE", Members: []netip.Prefix{cidr("10.1.0.0/16"), cidr("10.2.0.0/16")}},
		dataplane.Chain{
			Table: "mangle", Name: "SUBMARINER-GW-FORWARD", Hook: "FORWARD", Sets: []string{"SUBMARINER-GW-REMOTE"},
			Rules: []string{
				"-s 10.0.0.1 -m set --match-set SUBMARINER-GW-REMOTE dst -j MARK --set-mark 5",
				`-m comment --comment "two words" -j RETURN`,
			},
		},
		dataplane.Chain{Table: "filter", Name: "SUBMARINER-GW-NOHOOK", Rules: []string{"-j DROP"}},
		dataplane.VXLAN{
			Name: dev, MAC: mac, VNI: dataplane.CableVNI, Local: ip("172.18.0.2"), Port: dataplane.VXLANPort, MTU: 1450,
			Conf: dataplane.Conf{RPFilter: 2, Forwarding: 1},
		},
		dataplane.Addr{Dev: dev, Prefix: cidr("241.18.0.2/8")},
		wgDevice(),
		dataplane.Addr{Dev: wg, Prefix: cidr("244.18.0.2/8")},
		wgPeer(1, "172.18.0.3:4501", "10.1.0.0/16", "244.18.0.3/32"),
		wgPeer(2, "172.18.0.4:4501", "10.2.0.0/16"),
		dataplane.Nexthop{ID: 0x11000001, Dev: wg},
		dataplane.FDB{Dev: dev, MAC: peer, Dst: ip("172.18.0.3")},
		dataplane.Neigh{Dev: dev, IP: ip("241.18.0.3"), MAC: peer},
		dataplane.Nexthop{ID: 0x10000001, Via: ip("241.18.0.3"), Dev: dev},
		dataplane.Nexthop{ID: 0x10000002, Via: ip("241.18.0.4"), Dev: dev},
		dataplane.Group{
			ID:      0x1f000001,
			Members: []dataplane.Member{{ID: 0x10000001, Weight: 1}, {ID: 0x10000002, Weight: 256}},
		},
		dataplane.Group{
			ID:      0x1f000002,
			Members: []dataplane.Member{{ID: 0x10000001, Weight: 3}},
			Buckets: 32,
			Idle:    1500 * time.Millisecond,
		},
		dataplane.Route{
			Table: dataplane.CableTable,
			Dst:   cidr("10.1.0.0/16"),
			Group: 0x1f000001,
			Src:   ip("172.18.0.2"),
		},
		dataplane.Detour{
			Table: dataplane.CableTable,
			Dst:   cidr("10.1.0.0/16"),
			Hop:   0x10000002,
			Src:   ip("172.18.0.2"),
			MTU:   1400,
		},
		dataplane.Blackhole{Table: dataplane.CableTable, Dst: cidr("10.1.0.0/16")},
		dataplane.Blackhole{Table: dataplane.CableTable, Dst: cidr("10.9.0.0/16")},
		dataplane.Route{Table: dataplane.CableTable + 1, Dst: cidr("10.2.0.0/16"), Group: 0x1f000002},
		dataplane.Throw{Table: dataplane.CableTable, Dst: cidr("10.7.0.0/16")},
		dataplane.Route{Table: dataplane.CableTable, Dst: cidr("0.0.0.0/0"), Group: 0x1f000002},
		dataplane.Rule{Priority: dataplane.CablePriority, Table: dataplane.CableTable, Specific: true},
		dataplane.MarkRule{Priority: 105, Mark: 1, Mask: 0x3f, Table: dataplane.CableTable},
		dataplane.Arrival{
			Priority: dataplane.ArrivalPriority, Dev: "notyet0", Table: dataplane.IntraTable, Specific: true,
		},
	}...)
}

// An object of every kind is put, and observed as it was put. Putting it again changes nothing,
// and removing it twice is no error.
func TestRoundTrip(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	want := state(t, one()...)
	require.Len(t, settle(t, ns, h, want), len(want))
	require.Equal(t, fingerprints(want), fingerprints(look(t, ns, h)))
	require.Empty(t, settle(t, ns, h, want), "a second sync has nothing to do")
	ns.Do(func() {
		for _, o := range want.Sorted() {
			require.NoError(t, h.Apply(context.Background(), dataplane.Op{Old: o, New: o}), "again: %v", o)
		}
	})
	require.Empty(t, settle(t, ns, h, want), "putting what is there changes nothing")
	removals := dataplane.Diff(want, dataplane.State{})
	require.Len(t, removals, len(want))
	ns.Do(func() {
		for range 2 {
			for _, op := range removals {
				require.NoError(t, h.Apply(context.Background(), op), "%v", op)
			}
		}
	})
	require.Empty(t, look(t, ns, h))
}

// fingerprints returns the objects as comparable texts: of an observed chain only the
// fingerprint is known.
func fingerprints(s dataplane.State) (out []string) {
	for _, o := range s.Sorted() {
		switch o := o.(type) {
		case dataplane.Chain:
			out = append(out, o.Key().Name+" "+o.Hook+" "+o.Fingerprint())
		case dataplane.Ruleset:
			out = append(out, shape(o))
		default:
			out = append(out, o.String())
		}
	}
	return out
}

// shape returns a table as digests of its rules and sets, with the elements.
func shape(r dataplane.Ruleset) string {
	out := r.Table
	for _, s := range r.Sets {
		out += fmt.Sprint(" ", s.Name, s.Digest(), s.Elements)
	}
	for _, c := range r.Chains {
		out += fmt.Sprint(" ", c.Name, c.Type, c.Hook, c.Priority, c.Odd)
		for _, rule := range c.Rules {
			out += " " + rule.Digest()
		}
	}
	return out
}

// set returns a Set with its members sorted, as in a plan.
func set(name string, members ...netip.Prefix) dataplane.Set {
	slices.SortFunc(members, netip.Prefix.Compare)
	return dataplane.Set{Name: name, Members: members}
}
