//go:build linux

package kernel

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"subctl/dataplane"
	"subctl/internal/nstest"

	goiptables "github.com/coreos/go-iptables/iptables"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The settings that are written over netlink are the settings that sysctl shows.
func TestConf(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	for _, c := range []dataplane.Conf{
		{RPFilter: 2, Forwarding: 1},
		{RPFilter: 1},
		{Forwarding: 1},
		{ARPIgnore: 8},
		{},
	} {
		v := dataplane.VXLAN{
			Name:  dataplane.VXLANDevice,
			MAC:   "0a:58:ac:12:00:02",
			VNI:   1000,
			Local: ip("172.18.0.2"),
			Port:  4500,
			MTU:   1450,
			Conf:  c,
		}
		settle(t, ns, h, state(t, v))
		got := ns.Run(
			"cat /proc/sys/net/ipv4/conf/vxlan-tunnel/rp_filter /proc/sys/net/ipv4/conf/vxlan-tunnel/forwarding /proc/sys/net/ipv4/conf/vxlan-tunnel/arp_ignore")
		require.Equal(t, fmt.Sprintf("%d\n%d\n%d\n", c.RPFilter, c.Forwarding, c.ARPIgnore), got)
	}
	require.Equal(t, "0\n", ns.Run("cat /proc/sys/net/ipv4/conf/all/rp_filter"), "other devices are left alone")
	ns.Run("echo 2 >/proc/sys/net/ipv4/conf/vxlan-tunnel/arp_ignore") // the kernel reports no change
	v := dataplane.VXLAN{
		Name:  dataplane.VXLANDevice,
		MAC:   "0a:58:ac:12:00:02",
		VNI:   1000,
		Local: ip("172.18.0.2"),
		Port:  4500,
		MTU:   1450,
	}
	require.Len(t, settle(t, ns, h, state(t, v)), 1)
	require.Equal(t, "0\n", ns.Run("cat /proc/sys/net/ipv4/conf/vxlan-tunnel/arp_ignore"))
}

// A device that can be changed in place is not recreated: it keeps its index.
func TestAlterInPlace(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	want := state(t, one()...)
	settle(t, ns, h, want)
	index := ns.Run("cat /proc/net/dev | grep -c vxlan; ip -o link show vxlan-tunnel | cut -d: -f1")
	key := dataplane.Key{Kind: dataplane.KindLink, Name: dataplane.VXLANDevice}
	v := want[key].(dataplane.VXLAN)
	v.MTU = 1400
	v.Conf.RPFilter = 1
	want[key] = v
	require.Len(t, settle(t, ns, h, want), 1)
	v.MAC = "0a:58:ac:12:00:99" // clears the ARP table
	want[key] = v
	settle(t, ns, h, want)
	require.Equal(t, index, ns.Run("cat /proc/net/dev | grep -c vxlan; ip -o link show vxlan-tunnel | cut -d: -f1"))
}

// A rule that matches on a set continues to match while members are added and removed: the
// set is neither emptied nor replaced.
func TestSetKeepsMatching(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	const name = "SUBMARINER-GW-REMOTE"
	var many []netip.Prefix
	for i := range 3000 { // more than one message
		many = append(many, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24))
	}
	settle(t, ns, h, state(t, set(name, many...)))
	require.Equal(t, "3000\n", ns.Run("ipset list "+name+" | grep -c ^10"))
	require.Empty(t, settle(t, ns, h, state(t, set(name, many...))))
	ns.Run("iptables -A OUTPUT -m set --match-set " + name + " dst -j DROP")
	ns.Run("ipset test " + name + " 10.0.5.1")
	for n := 3000; n > 5; n -= 999 {
		require.Len(t, settle(t, ns, h, state(t, set(name, many[5:n]...))), 1)
	}
	ns.Run("ipset test " + name + " 10.0.5.1")

	// A set in use cannot be removed, and the error names it.
	var err error
	ns.Do(func() { _, err = dataplane.Sync(context.Background(), h, nil) })
	require.ErrorContains(t, err, name)
	require.ErrorContains(t, err, "busy")
}

// The chain as iptables and go-iptables see it.
func TestChainInIPTables(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	settle(t, ns, h, state(t, one()...))
	save := ns.Run("iptables-save -t mangle")
	require.Contains(t, save, "-A FORWARD -j SUBMARINER-GW-FORWARD\n")
	require.Contains(t, save,
		"-A SUBMARINER-GW-FORWARD -s 10.0.0.1/32 -m set --match-set SUBMARINER-GW-REMOTE dst -j MARK --set-xmark 0x5/0xffffffff\n")
	ns.Do(func() {
		ipt, err := goiptables.New()
		require.NoError(t, err)
		ok, err := ipt.Exists("mangle", "FORWARD", "-j", "SUBMARINER-GW-FORWARD")
		require.NoError(t, err)
		require.True(t, ok)
	})
}

// A chain that iptables refuses is not created in part, and the error shows the rule.
func TestChainAtomic(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	bad := dataplane.Chain{
		Table: "filter",
		Name:  "SUBMARINER-GW-X",
		Hook:  "FORWARD",
		Rules: []string{"-j ACCEPT", "-j NOSUCHTARGET"},
	}
	var err error
	ns.Do(func() { _, err = dataplane.Sync(context.Background(), h, state(t, bad)) })
	require.ErrorContains(t, err, "NOSUCHTARGET")
	require.Empty(t, look(t, ns, h))
}

// iptables runs in the namespace of the thread, so a Host refuses to run it in another
// namespace: it would change the wrong rules.
func TestWrongNamespace(t *testing.T) {
	_, h := node(t, dataplane.GatewayOwner)
	elsewhere := nstest.New(t, "elsewhere")
	elsewhere.Do(func() {
		_, err := h.Observe(context.Background())
		require.ErrorContains(t, err, "network namespace")
		err = h.Apply(context.Background(),
			dataplane.Op{New: dataplane.Chain{Table: "filter", Name: "SUBMARINER-GW-X"}})
		require.ErrorContains(t, err, "network namespace")
	})
	require.Empty(t, elsewhere.Run("iptables-save"))
	// Netlink does not depend on the thread.
	require.NoError(t, h.Apply(context.Background(), dataplane.Op{
		New: dataplane.Rule{Priority: 100, Table: dataplane.CableTable},
	}))
}

// cut stops the agent after some steps.
type cut struct {
	*Host
	left int
	stop func()
}

func (c *cut) Apply(ctx context.Context, op dataplane.Op) error {
	if c.left--; c.left <= 0 {
		c.stop()
	}
	return c.Host.Apply(ctx, op)
}

// Wherever an agent is stopped, on the way to a plan or to the empty one, the next agent
// completes the plan.
func TestStoppedAnywhere(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	want := state(t, one()...)
	for n := 1; n < len(want); n++ {
		for _, target := range []dataplane.State{want, nil} {
			ctx, stop := context.WithCancel(context.Background())
			ns.Do(func() {
				_, err := dataplane.Sync(ctx, &cut{h, n, stop}, target)
				require.ErrorIs(t, err, context.Canceled)
			})
			anew := host(t, ns, dataplane.GatewayOwner)
			settle(t, ns, anew, target)
			require.Equal(t, fingerprints(target), fingerprints(look(t, ns, anew)))
		}
	}
}

// Errors name the step and the object, and contain the kernel's message.
func TestErrors(t *testing.T) {
	_, h := node(t, dataplane.GatewayOwner)
	for _, c := range []struct {
		o    dataplane.Object
		is   error
		says string
	}{
		{
			dataplane.Addr{Dev: "vxlan-tunnel", Prefix: cidr("241.0.0.1/8")},
			unix.ENODEV,
			"adding address 241.0.0.1/8 on vxlan-tunnel",
		},
		{dataplane.Route{Table: dataplane.CableTable, Dst: cidr("10.0.0.0/8"), Group: 7}, unix.EINVAL, "adding route " +
			"(ip route replace 10.0.0.0/8 table 170171100 nhid 7): invalid argument: Nexthop id does not exist"},
		{
			dataplane.Group{ID: 0x1f000001, Members: []dataplane.Member{{ID: 5, Weight: 1}}},
			unix.EINVAL,
			"adding next hop or group 520093697: invalid argument: Invalid nexthop id",
		},
		{
			dataplane.Nexthop{ID: 0x10000001, Via: ip("203.0.113.1"), Dev: "eth0"},
			unix.ENETUNREACH,
			"Nexthop has invalid gateway",
		},
		{dataplane.Group{ID: 0x1f000001, Idle: 1}, nil, "multiple of 100ms"},
	} {
		err := h.Apply(context.Background(), dataplane.Op{New: c.o})
		require.ErrorContains(t, err, c.says)
		if c.is != nil {
			require.ErrorIs(t, err, c.is)
		}
	}
}

// iptables-save is slow where other programs have many rules, and is not run when they change.
func TestChainsCached(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	want := state(t, one()...)
	settle(t, ns, h, want)
	settle(t, ns, h, want)
	if !strings.Contains(ns.Run("iptables --version"), "nf_tables") {
		t.Skip("the old iptables does not tell of changes")
	}
	path := os.Getenv("PATH")
	seeing := func() (err error) {
		t.Setenv("PATH", "") // nothing can be run
		defer t.Setenv("PATH", path)
		ns.Do(func() { _, err = h.Observe(context.Background()) })
		return err
	}
	require.NoError(t, seeing())
	ns.Run("iptables -t mangle -N KUBE-X && iptables -t mangle -A KUBE-X -j RETURN")
	require.NoError(t, seeing(), "chains of others")
	ns.Run("iptables -t mangle -R FORWARD 1 -j KUBE-X")
	require.Error(t, seeing(), "a rule that took the place of ours")
	settle(t, ns, h, want)
	settle(t, ns, h, want)
	require.NoError(t, seeing())

	// A jump to our chain in the chain of another program is not observed, but does not keep
	// our chain from being removed.
	ns.Run("iptables -t mangle -A KUBE-X -j SUBMARINER-GW-FORWARD")
	settle(t, ns, h, nil)
	require.NotContains(t, ns.Run("iptables-save"), "SUBMARINER")
	require.Contains(t, ns.Run("iptables-save"), "-A KUBE-X -j RETURN")
}
