package drivers_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"subctl/api/crds"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/cable/keys"
	"subctl/dataplane"
)

// The contract of every driver: see cable.Driver and cable.Properties. A new driver is tested
// by it without a change to these files, as the toy shows.

// ring is the keys of a cluster, always the same.
func ring(cluster string, n byte) *keys.Ring {
	private, err := keys.ParsePrivate(bytes.Repeat([]byte{n}, keys.Size))
	if err != nil {
		panic(err) // any 32 bytes are a key
	}
	return &keys.Ring{
		Cluster: cluster,
		Private: private,
		Seed:    bytes.Repeat([]byte{n + 1}, keys.Size),
		PSK:     bytes.Repeat([]byte{0x77}, 48),
	}
}

// local is the only gateway of cluster n, which can do everything.
func local(n byte) cable.Local {
	cluster := fmt.Sprintf("c%d", n)
	pods := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 100 + n, 0, 0}), 16)
	services := netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64 + n, 0, 0}), 16)
	return cable.Local{
		Gateway: cable.Gateway{
			Cluster: cluster, Name: "cable-" + cluster, Host: "gw", PrivateIP: netip.AddrFrom4([4]byte{172, 18, n, 11}),
			Subnets: []netip.Prefix{services, pods},
		},
		MTU:   1500,
		PodIP: pods.Addr().Next(),
		Pods:  []netip.Prefix{pods},
		Svcs:  []netip.Prefix{services},
		Keys:  ring(cluster, n),
		WireGuard: dataplane.Engine{
			Name: dataplane.EngineKernel,
		},
		IPsec: dataplane.Engine{Name: dataplane.EngineKernel},
	}
}

// peer is the gateway of cluster n as others see it.
func peer(t testing.TB, n byte) cable.Peer { return asPeer(t, local(n)) }

// asPeer is a gateway as others see it: it announces what all drivers do.
func asPeer(t testing.TB, l cable.Local) cable.Peer {
	t.Helper()
	p := cable.Peer{Gateway: l.Gateway, Address: l.PrivateIP, PublicKey: l.Keys.Private.Public()}
	p.Gateway.Config = map[string]string{}
	for _, d := range all() {
		config, err := d.Advertise(l)
		require.NoError(t, err, d.Name())
		for k, v := range config {
			old, taken := p.Gateway.Config[k]
			require.False(t, taken && old != v, "two drivers announce %s, with different values", k)
			p.Gateway.Config[k] = v
		}
		p.Drivers = append(p.Drivers, d.Name())
	}
	return p
}

func peers(t testing.TB, ns ...byte) (out []cable.Peer) {
	t.Helper()
	for _, n := range ns {
		out = append(out, peer(t, n))
	}
	return out
}

func each(t *testing.T, f func(*testing.T, cable.Driver)) {
	for _, d := range all() {
		t.Run(d.Name(), func(t *testing.T) { f(t, d) })
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	each(t, func(t *testing.T, d cable.Driver) {
		require.False(t, seen[d.Name()])
		seen[d.Name()] = true
		require.Equal(t, d.Name(), cable.Canonical(d.Name()), "or nobody could ask for it")
		found, err := cable.FindDriver(d.Name(), all())
		require.NoError(t, err)
		require.Equal(t, d, found)
	})
	require.True(t, seen[drivers.Default])
}

// A gateway that has everything lacks nothing, and what it announces is no secret, and
// is accepted by another one like it.
func TestAccepted(t *testing.T) {
	each(t, func(t *testing.T, d cable.Driver) {
		require.NoError(t, d.Lacks(local(1)))
		require.NoError(t, d.Refuses(local(1), peer(t, 2)))
		config, err := d.Advertise(local(1))
		require.NoError(t, err)
		requireNoSecret(t, fmt.Sprint(config), local(1), peer(t, 2))
	})
}

// Cable policies accept every driver.
func TestPolicyEnum(t *testing.T) {
	all, err := crds.All()
	require.NoError(t, err)
	i := slices.IndexFunc(all, func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return crd.Spec.Names.Kind == "CablePolicies"
	})
	rules := all[i].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	var names []string
	for _, value := range rules.Items.Schema.Properties["name"].Enum {
		names = append(names, strings.Trim(string(value.Raw), `"`))
	}
	for _, d := range drivers.All() {
		require.Contains(t, names, d.Name())
	}
}

// A combined driver is named after the drivers that it combines, and encrypts if one of them
// does.
func TestParts(t *testing.T) {
	each(t, func(t *testing.T, d cable.Driver) {
		properties := d.Properties()
		if len(properties.Parts) == 0 {
			require.NotContains(t, d.Name(), "+")
			return
		}
		require.Equal(t, d.Name(), strings.Join(properties.Parts, "+"))
		encrypts := false
		for _, name := range properties.Parts {
			part, err := cable.FindDriver(name, all())
			require.NoError(t, err)
			require.Empty(t, part.Properties().Parts, "%s is itself a combined driver", name)
			encrypts = encrypts || part.Properties().Encrypts
		}
		require.Equal(t, encrypts, properties.Encrypts)
	})
}

// A node without any engine lacks what a driver declares that it needs, and nothing else.
func TestEngine(t *testing.T) {
	each(t, func(t *testing.T, d cable.Driver) {
		engine := d.Properties().Engine
		l := local(1)
		l.WireGuard = dataplane.Engine{Missing: "its module"}
		l.IPsec = dataplane.Engine{Missing: "its module"}
		if engine == cable.ProtocolNone {
			require.NoError(t, d.Lacks(l))
			return
		}
		require.EqualError(t, d.Lacks(l), fmt.Sprintf("this node has no %s: it lacks its module", engine))
	})
}

// A driver that does not pass address translations refuses peers that have one on their path.
func TestNAT(t *testing.T) {
	each(t, func(t *testing.T, d cable.Driver) {
		translated := peer(t, 2)
		seen := peer(t, 2)
		here := local(1)
		translated.NAT = true
		seen.NATed = true
		here.NAT = true
		for _, err := range []error{
			d.Refuses(local(1), translated),
			d.Refuses(local(1), seen),
			d.Refuses(here, peer(t, 2)),
		} {
			require.Equal(t, d.Properties().PassesNAT, err == nil, "%v", err)
		}
	})
}

// sibling is another gateway of the cluster of peer(t, n).
func sibling(t testing.TB, n, host byte) cable.Peer {
	t.Helper()
	l := local(n)
	l.Name = fmt.Sprintf("%s-%d", l.Name, host)
	l.PrivateIP = netip.AddrFrom4([4]byte{172, 18, n, host})
	return asPeer(t, l)
}

// Of several gateways of one cluster, a driver gets as many as it declares, and its plan leads
// to all of them.
func TestMaxGateways(t *testing.T) {
	const gateways = 3
	each(t, func(t *testing.T, d cable.Driver) {
		most := d.Properties().MaxGateways
		claims := cable.NewClaims(all())
		places := cable.NewPlaces(all())
		var connected []cable.Peer
		for _, p := range []cable.Peer{peer(t, 2), sibling(t, 2, 12), sibling(t, 2, 13)} {
			require.NoError(t, claims.Announce(p))
			if err := places.Take(cable.Cable{Peer: p, Driver: d}); err == nil {
				connected = append(connected, p)
			} else {
				require.ErrorContains(t, err, fmt.Sprintf("%s connects to", d.Name()))
			}
		}
		if most == 0 {
			most = gateways
		}
		require.Len(t, connected, min(most, gateways))
		cabling := cable.Cabling{Local: local(1)}
		for _, p := range connected {
			cabling.Peers = append(cabling.Peers, cable.Cable{Peer: p, Driver: d})
		}
		s, links, err := cable.Plan(cabling)
		require.NoError(t, err)
		requireSound(t, s)
		var members []dataplane.Member
		for _, o := range s {
			if route, ok := o.(dataplane.Route); ok && route.Dst == connected[0].Subnets[0] {
				members = s[dataplane.Group{ID: route.Group}.Key()].(dataplane.Group).Members
			}
		}
		require.Len(t, members, len(links), "the cluster's networks are behind every gateway")
	})
}

// A driver that connects to few gateways of a cluster has one that stands in for it, which encrypts
// like it, speaks the same protocol, and has all of its settings.
func TestStandIn(t *testing.T) {
	each(t, func(t *testing.T, d cable.Driver) {
		x := cable.Gateway{TellsSiblings: true, Siblings: true}
		y := cable.Gateway{TellsSiblings: true}
		in, _ := cable.StandIn(d, drivers.All(), x, y)
		if d.Properties().MaxGateways == 0 {
			require.Nil(t, in)
			return
		}
		require.NotNil(t, in)
		require.Equal(t, d.Properties().Encrypts, in.Properties().Encrypts)
		require.Equal(t, d.Properties().Engine, in.Properties().Engine)
		for _, o := range d.Options() {
			require.True(t,
				slices.ContainsFunc(in.Options(), func(other cable.Option) bool { return other.Key == o.Key }), o.Key)
		}
	})
}

// A plan is a function of its input, whatever the order of the peers.
func TestPlanIsPure(t *testing.T) {
	each(t, func(t *testing.T, d cable.Driver) {
		first, err := d.Plan(local(1), peers(t, 2, 3, 4))
		require.NoError(t, err)
		again, err := d.Plan(local(1), peers(t, 2, 3, 4))
		require.NoError(t, err)
		require.Equal(t, first, again)
		turned, err := d.Plan(local(1), peers(t, 4, 2, 3))
		require.NoError(t, err)
		require.Equal(t, first.State, turned.State)
		slices.Reverse(turned.Links[1:])
		require.Equal(t, first.Links[2], turned.Links[0], "links are in the order of the peers")
	})
}

// Nodes forward the VXLAN packets of a driver from gateways only, if the driver tells which these
// are.
func TestOverVXLAN(t *testing.T) {
	each(t, func(t *testing.T, d cable.Driver) {
		w, err := d.Plan(local(1), peers(t, 2))
		require.NoError(t, err)
		over, is := d.(cable.OverVXLAN)
		planned := 0
		for _, o := range w.State {
			if v, vxlan := o.(dataplane.VXLAN); vxlan {
				planned++
				require.True(t, is, "%s plans %s, and is no cable.OverVXLAN", d.Name(), v.Name)
				require.Equal(t, v.Port, over.VXLANPort(local(1)))
			}
		}
		require.Equal(t, is, planned > 0)
	})
}

func TestLinks(t *testing.T) {
	each(t, func(t *testing.T, d cable.Driver) {
		ps := peers(t, 2, 3)
		w, err := d.Plan(local(1), ps)
		require.NoError(t, err)
		require.Len(t, w.Links, len(ps))
		for i, l := range w.Links {
			require.True(t, dataplane.GatewayOwner.IDs.Has(l.Hop), "%#x", l.Hop)
			require.Equal(t, d.Device(ps[i].Config), l.Device)
			hop, ok := w.State[dataplane.Nexthop{ID: l.Hop}.Key()].(dataplane.Nexthop)
			require.True(t, ok, "the next hop %d is not in the plan", l.Hop)
			require.Equal(t, l.Device, hop.Dev)
			require.True(t, l.IP.Is4() && l.From.Is4(), "probes go from %v to %v", l.From, l.IP)
			other, err := d.Plan(local(ps[i].Subnets[1].Addr().As4()[1]-100), peers(t, 1))
			require.NoError(t, err)
			require.Equal(t, l.IP, other.Links[0].From, "it is there where it is looked for")
			require.Equal(t, l.State == "", l.StateDevice == "")
			require.Equal(t, d.Properties().Engine != cable.ProtocolNone, l.State != "",
				"an engine keeps a state of each cable")
			if l.StateDevice != "" {
				require.Contains(t, w.State, dataplane.Key{Kind: dataplane.KindLink, Name: l.StateDevice})
			}
		}
		require.NotEqual(t, w.Links[0].Hop, w.Links[1].Hop)
		require.NotEmpty(t, w.Listens)
		for _, l := range w.Listens {
			require.Contains(t, []string{"udp", "esp"}, l.Proto)
			require.False(t, l.Proto == "udp" && (l.Port < 1 || l.Port > 65535), "port %d", l.Port)
		}
	})
}

// The whole plan of a gateway stands on itself, shows no secret, and is the gateway's to
// remove.
func TestWholePlan(t *testing.T) {
	each(t, func(t *testing.T, d cable.Driver) {
		s := whole(t, local(1), func(int) cable.Driver { return d }, peers(t, 2, 3, 4))
		requireSound(t, s)
		requireNoSecret(t, s.String(), local(1), peer(t, 2))
	})
}

// Every driver at once, each for other peers, on one gateway; and every two of them for
// the same peer, as when a pair changes its cable.
func TestAllAtOnce(t *testing.T) {
	all := all()
	var ps []cable.Peer
	for i := range 2 * len(all) {
		ps = append(ps, peer(t, byte(2+i)))
	}
	s := whole(t, local(1), func(i int) cable.Driver { return all[i%len(all)] }, ps)
	requireSound(t, s)
	ports := map[string]string{}
	octets := map[uint32]string{}
	for _, octet := range []uint32{ // what is not a cable's next hop
		dataplane.OtherVNINexthopID,
		dataplane.OtherVNINexthopID | dataplane.TwinNexthop,
		dataplane.OtherVNIGroupID,
		dataplane.SiblingNexthopID,
		dataplane.ResilientCableGroupID,
		dataplane.CableGroupID,
	} {
		octets[octet] = "others"
	}
	for _, d := range all {
		protocol := cmp.Or(string(d.Properties().Engine), d.Name()) // drivers of one share its port
		w, err := d.Plan(local(1), peers(t, 2))
		require.NoError(t, err)
		for _, l := range w.Listens {
			key := fmt.Sprintf("%s %d", l.Proto, l.Port)
			require.Contains(t, []string{"", protocol}, ports[key], "%s listens where another does: %s", d.Name(), key)
			ports[key] = protocol
		}
		for _, octet := range []uint32{w.Links[0].Hop >> 24, w.Links[0].Hop>>24 | dataplane.TwinNexthop} {
			require.NotContains(t, octets, octet, "next hops of %s could have the IDs of others", d.Name())
			octets[octet] = d.Name()
		}
	}
	for _, a := range all {
		for _, b := range all {
			if a.Device(nil) == b.Device(nil) {
				continue
			}
			both := []cable.Driver{a, b}
			t.Run(a.Name()+" to "+b.Name(), func(t *testing.T) {
				requireSound(
					t,
					whole(t, local(1), func(i int) cable.Driver { return both[i] },
						[]cable.Peer{peer(t, 2), peer(t, 2)}),
				)
			})
		}
	}
}

// Without keys, a plan can be shown: it has the same objects, with zero secrets.
func TestPlanWithoutKeys(t *testing.T) {
	each(t, func(t *testing.T, d cable.Driver) {
		l := local(1)
		with, err := d.Plan(l, peers(t, 2, 3))
		require.NoError(t, err)
		l.Keys = nil
		require.NoError(t, d.Refuses(l, peer(t, 2)))
		without, err := d.Plan(l, peers(t, 2, 3))
		require.NoError(t, err)
		require.Equal(t, with.State.String(), without.State.String())
		for _, o := range without.State {
			switch o := o.(type) {
			case dataplane.WireGuard:
				require.True(t, o.Private == dataplane.Secret{})
			case dataplane.WireGuardPeer:
				require.True(t, o.Preshared == dataplane.Secret{})
			case dataplane.Tunnel:
				require.True(t, o.PSK == dataplane.Secret{})
			}
		}
	})
}

// A gateway without peers has nothing that somebody could send to.
func TestAlone(t *testing.T) {
	each(t, func(t *testing.T, d cable.Driver) {
		w, err := d.Plan(local(1), nil)
		require.NoError(t, err)
		require.Empty(t, w.State)
		require.Empty(t, w.Links)
	})
}

func TestOverheads(t *testing.T) {
	each(t, func(t *testing.T, d cable.Driver) {
		for _, mtu := range []int{0, 1280, 1400, 1500} {
			p := peer(t, 2)
			p.MTU = mtu
			require.Positive(t, d.Overhead(local(1), p))
			c := cable.Cable{Peer: p, Driver: d}
			require.Greater(t, c.MTU(local(1)), 1000)
			p.NAT = true
			p.NATed = true
			require.GreaterOrEqual(t, d.Overhead(local(1), p), d.Overhead(local(1), peer(t, 2)))
		}
	})
}

func TestOptions(t *testing.T) {
	known := map[string]cable.Option{}
	each(t, func(t *testing.T, d cable.Driver) {
		var keys []string
		for _, o := range d.Options() {
			require.NotContains(t, keys, o.Key)
			keys = append(keys, o.Key)
			require.NotEmpty(t, o.Doc, o.Key)
			require.False(t, strings.HasSuffix(o.Doc, "."), "%s: a sentence in a table has no full stop", o.Key)
			if o.Kind == cable.OptionNumber || o.Kind == cable.OptionDuration {
				require.Less(t, o.Min, o.Max, o.Key)
			}
			if o.Default != "0" || o.Kind != cable.OptionNumber { // unset
				_, err := cable.ParseConfig(d.Name()+":\n  "+o.Key+": "+strconv.Quote(o.Default), []cable.Driver{d})
				require.NoError(t, err, "%s: its default is none of its values", o.Key)
			}
			o.Check = nil // functions are not compared
			if other, ok := known[o.Key]; ok {
				require.Equal(t, other, o, "two drivers have a setting %s, and differ on what it is", o.Key)
			}
			known[o.Key] = o
		}
		require.Contains(t, keys, cable.OptionMTU.Key)
	})
}

// What other clusters announce may be anything: it is refused, in few and harmless words,
// or has no effect; but never does it stop a plan.
func TestHostileConfig(t *testing.T) {
	values := []string{
		"",
		"0",
		"-1",
		"65536",
		"99999999999999999999",
		" 4500",
		"4500 ",
		"0x10",
		"1e3",
		"\x00",
		"\x1b[31m",
		"true\n",
		"../../etc/passwd",
		"$(reboot)",
		"; reboot",
		strings.Repeat("A", 1<<20),
		"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
	}
	each(t, func(t *testing.T, d cable.Driver) {
		own, err := d.Advertise(local(2))
		require.NoError(t, err)
		require.NotEmpty(t, own)
		for key := range own {
			refused := false
			for _, v := range values {
				p := peer(t, 2)
				p.Gateway.Config[key] = v
				err := d.Refuses(local(1), p)
				if err == nil {
					_, err := d.Plan(local(1), []cable.Peer{p})
					require.NoError(t, err, "%s=%.40q was not refused, and stops the plan", key, v)
					continue
				}
				refused = true
				require.Less(t, len(err.Error()), 500, "%s: %.200s", key, err)
				require.NotContains(t, err.Error(), "\x1b", key)
				require.NotContains(t, err.Error(), "\n", key)
			}
			if key != "interface-name" { // for people
				require.True(t, refused, "%s may be anything", key)
			}
		}
		p := peer(t, 2)
		p.PublicKey = keys.PublicKey{}
		p.Gateway.Config = nil
		if err := d.Refuses(local(1), p); err == nil {
			_, err := d.Plan(local(1), []cable.Peer{p})
			require.NoError(t, err, "a peer that says nothing")
		}
	})
}

// whole is the plan of a gateway whose i-th peer has the driver of i.
func whole(t *testing.T, l cable.Local, driver func(int) cable.Driver, ps []cable.Peer) dataplane.State {
	t.Helper()
	c := cable.Cabling{Local: l}
	for i, p := range ps {
		c.Peers = append(c.Peers, cable.Cable{Peer: p, Driver: driver(i), Idle: i > 0 && p.Name == ps[0].Name})
	}
	s, links, err := cable.Plan(c)
	require.NoError(t, err)
	require.Len(t, links, len(ps))
	return s
}

// requireSound wants all that objects stand on, and every object to be the gateway's.
func requireSound(t *testing.T, s dataplane.State) {
	t.Helper()
	owner := dataplane.GatewayOwner
	for k, o := range s {
		for _, need := range o.Needs() {
			require.Contains(t, s, need, "%v", o)
		}
		switch o := o.(type) {
		case dataplane.Set:
			require.True(t, owner.OwnsChain(o.Name), o.Name)
		case dataplane.Chain:
			require.True(t, owner.OwnsChain(o.Name), o.Name)
		case dataplane.Nexthop:
			require.True(t, owner.IDs.Has(o.ID), "%v", o)
		case dataplane.Group:
			require.True(t, owner.IDs.Has(o.ID), "%v", o)
		case dataplane.Route:
			require.True(t, owner.Tables.Has(uint32(o.Table)), "%v", o)
		case dataplane.Tunnel:
			require.True(t, owner.IDs.Has(o.ReqID), "%v", o)
		}
		if k.Kind == dataplane.KindLink {
			require.True(t, owner.OwnsDevice(k.Name), "nobody would remove %s", k.Name)
		}
	}
	requireArrivals(t, s)
}

// requireArrivals wants packets that arrive on a device to find the pods of workers as soon as the
// device exists: the other end uses a cable once it answers.
func requireArrivals(t *testing.T, s dataplane.State) {
	t.Helper()
	step := map[dataplane.Key]int{}
	for i, op := range dataplane.Diff(nil, s) {
		step[op.New.Key()] = i
	}
	for _, o := range s {
		if hop, ok := o.(dataplane.Nexthop); ok {
			arrival := dataplane.Arrival{
				Priority: dataplane.ArrivalPriority, Dev: hop.Dev, Table: dataplane.IntraTable, Specific: true,
			}
			require.Equal(t, arrival, s[arrival.Key()])
			require.Less(t, step[arrival.Key()], step[dataplane.Key{Kind: dataplane.KindLink, Name: hop.Dev}],
				"the rule comes first")
		}
	}
}

// requireNoSecret wants a text without any key of a gateway, in any spelling.
func requireNoSecret(t *testing.T, text string, l cable.Local, p cable.Peer) {
	t.Helper()
	gateway, err := l.Keys.WireGuard(l.Name)
	require.NoError(t, err)
	secrets := [][]byte{l.Keys.Private.Bytes(), l.Keys.Seed, l.Keys.PSK, gateway[:]}
	for _, purpose := range []string{keys.WireGuardPSK, keys.IPsecPSK} {
		pair, err := l.Keys.Pair(p.Cluster, p.PublicKey, purpose)
		require.NoError(t, err)
		secrets = append(secrets, pair[:])
	}
	for _, s := range secrets {
		for _, format := range []string{"%s", "%x", "%X", "%d", "%q"} {
			require.NotContains(t, text, fmt.Sprintf(format, s))
		}
		require.NotContains(t, text, base64.StdEncoding.EncodeToString(s))
	}
}
