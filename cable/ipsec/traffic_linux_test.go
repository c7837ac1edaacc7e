package ipsec

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/cable/keys"
	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/internal/nstest"
)

// gateway is a gateway of a test: node 172.18.0.N, pods 10.11N.0.0/16, Services 10.10N.0.0/16.
type gateway struct {
	n     int
	ns    *nstest.NS
	host  *kernel.Host
	local cable.Local
}

func gateways(t testing.TB) (a, b *gateway) {
	t.Helper()
	var out [2]*gateway
	for i := range out {
		n := i + 1
		g := &gateway{n: n, ns: nstest.New(t, fmt.Sprintf("gw%d", n))}
		g.local = cable.Local{
			Gateway: cable.Gateway{
				Cluster:   fmt.Sprintf("c%d", n),
				Name:      fmt.Sprintf("cable-c%d", n),
				PrivateIP: netip.AddrFrom4([4]byte{172, 18, 0, byte(n)}),
				Subnets: []netip.Prefix{
					netip.MustParsePrefix(
						fmt.Sprintf("10.10%d.0.0/16", n)), netip.MustParsePrefix(fmt.Sprintf("10.11%d.0.0/16", n)),
				},
			},
			MTU: 1500, PodIP: netip.MustParseAddr(fmt.Sprintf("10.11%d.0.1", n)),
		}
		g.local.Svcs, g.local.Pods = g.local.Subnets[:1], g.local.Subnets[1:]
		key, err := keys.Generate()
		require.NoError(t, err)
		g.local.Keys = &keys.Ring{Cluster: g.local.Cluster, Private: key, PSK: []byte("0123456789abcdef")}
		g.ns.Do(func() {
			f, err := kernel.ReadFacts()
			require.NoError(t, err)
			g.local.IPsec = f.IPsec
			g.host, err = kernel.New(dataplane.GatewayOwner)
			require.NoError(t, err)
		})
		out[i] = g
	}
	nstest.Join(nstest.End{NS: out[0].ns, Dev: "eth0", Addr: "172.18.0.1/24"},
		nstest.End{NS: out[1].ns, Dev: "eth0", Addr: "172.18.0.2/24"})
	for _, g := range out {
		g.ns.Run(
			fmt.Sprintf("ip addr add %v/32 dev lo; sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=1",
				g.local.PodIP),
		)
		t.Cleanup(func() {
			g.sync(t, dataplane.State{})
			g.host.Close()
		})
	}
	return out[0], out[1]
}

// pod is the address that the gateway has for one of its pods.
func (g *gateway) pod() nstest.Host { return nstest.Host{NS: g.ns, IP: g.local.PodIP.String()} }

// peer is the other gateway as this one sees it.
func (*gateway) peer(t testing.TB, d cable.Driver, other *gateway, config cable.Config) cable.Peer {
	t.Helper()
	p := cable.Peer{
		Gateway:   other.local.Gateway,
		Address:   other.local.PrivateIP,
		PublicKey: other.local.Keys.Private.Public(),
		Config:    config,
	}
	var err error
	p.Gateway.Config, err = d.Advertise(other.local)
	require.NoError(t, err)
	return p
}

// plan is what the gateway should hold to reach the other one.
func (g *gateway) plan(
	t testing.TB,
	d cable.Driver,
	other *gateway,
	config cable.Config,
) (dataplane.State, cable.Link) {
	t.Helper()
	require.NoError(t, d.Lacks(g.local))
	p := g.peer(t, d, other, config)
	require.NoError(t, d.Refuses(g.local, p))
	s, links, err := cable.Plan(cable.Cabling{Local: g.local, Peers: []cable.Cable{{Peer: p, Driver: d}}})
	require.NoError(t, err)
	return s, links[0]
}

func (g *gateway) sync(t testing.TB, want dataplane.State) (ops []dataplane.Op) {
	t.Helper()
	g.ns.Do(func() {
		var err error
		ops, err = dataplane.Sync(context.Background(), g.host, want)
		require.NoError(t, err)
	})
	return ops
}

// connect joins two gateways and waits until pings pass.
func connect(
	t testing.TB,
	d cable.Driver,
	a, b *gateway,
	config cable.Config,
) (wantA, wantB dataplane.State, link cable.Link) {
	t.Helper()
	wantA, link = a.plan(t, d, b, config)
	wantB, _ = b.plan(t, d, a, config)
	a.sync(t, wantA)
	b.sync(t, wantB)
	require.Eventually(t, func() bool {
		_, err := a.ns.Try(fmt.Sprintf("ping -c1 -W1 -I %v %v", link.From, link.IP))
		return err == nil
	}, 20*time.Second, 20*time.Millisecond, "probes pass")
	return wantA, wantB, link
}

// Whole plans, chains and routes included, carry probes and packets of every size both
// ways; a second sync does nothing.
func TestTraffic(t *testing.T) {
	for _, test := range []struct {
		driver cable.Driver
		config cable.Config
	}{
		{Driver{}, nil},
		{
			Driver{},
			cable.Config{
				"encapsulation": "yes",
				"espProposals":  "aes256-sha512-ecp384",
				"ikeProposals":  "aes256-sha384-ecp384",
			},
		},
		{Combined{}, nil},
		{Combined{}, cable.Config{"encapsulation": "yes", "mtu": "1300"}},
	} {
		t.Run(fmt.Sprint(test.driver.Name(), len(test.config)), func(t *testing.T) {
			nstest.Root(t)
			if test.driver.Name() == cable.VXLANIPsec {
				nstest.Kernel(t, "esp")
			}
			a, b := gateways(t)
			wantA, wantB, link := connect(t, test.driver, a, b, test.config)
			require.Empty(t, a.sync(t, wantA), "a second sync has nothing to do")
			require.Empty(t, b.sync(t, wantB))
			mtu := cable.Cable{Peer: a.peer(t, test.driver, b, test.config), Driver: test.driver}.MTU(a.local)
			seen := b.ns.Watch("eth0")
			nstest.Reach(t, a.pod(), b.pod(), mtu)
			nstest.Reach(t, b.pod(), a.pod(), mtu)
			require.False(t, seen().Marker, "what pods say can be read on the way")
			states, err := a.host.CableStates()
			require.NoError(t, err)
			require.Len(t, states, 1)
			require.Equal(t, link.State, states[0].Peer)
			require.Equal(t, link.StateDevice, states[0].Device)
			require.True(t, states[0].Up)
		})
	}
}

// Whatever proposals can consist of, the engine of this node can do.
func TestEveryProposal(t *testing.T) {
	nstest.Root(t)
	a, b := gateways(t)
	for i := range max(len(ciphers), len(groupPart.Names)) {
		pick := func(p Part) string { return p.Names[i%len(p.Names)] }
		cipher := pick(cipherPart)
		hash := "-" + pick(integrityPart)
		group := "-" + pick(groupPart)
		if ciphers[cipher].aead {
			hash = ""
		}
		config := cable.Config{
			"espProposals": cipher + hash + group,
			"ikeProposals": cipher + hash + "-" + pick(prfPart) + group,
		}
		for option, p := range map[string]protocol{"espProposals": esp, "ikeProposals": ike} {
			require.NoError(t, checkProposals(config[option], p))
		}
		t.Run(config["ikeProposals"], func(t *testing.T) {
			connect(t, Driver{}, a, b, config)
			nstest.Until(t, a.pod(), b.pod())
			for _, g := range []*gateway{a, b} {
				g.sync(t, dataplane.State{})
			}
		})
	}
}
