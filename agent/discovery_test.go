package agent

import (
	"log/slog"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
)

// What path discovery found is what a cable is made by; that it made the driver refuse
// the gateway is no reason to stop looking for it.
func TestPathsDecide(t *testing.T) {
	const name = "submariner-cable-west-10-89-2-11"
	a, err := txtar.ParseFile(filepath.Join("../testdata/scenarios", "two-clusters.txtar"))
	require.NoError(t, err)
	for _, test := range []struct {
		name        string
		path        Path
		address     string
		inboundOnly bool
		refused     string
	}{
		{name: "not known yet", address: "10.89.2.11"},
		{name: "nobody answered", path: Path{Done: true}, address: "10.89.2.11"},
		{name: "private", path: Path{Done: true, Address: netip.MustParseAddr("10.89.2.11"), MTU: 1400}, address: "10.89.2.11"},
		{name: "learned", path: Path{Done: true, Address: netip.MustParseAddr("198.51.100.1"), NAT: true, InboundOnly: true}, address: "198.51.100.1", inboundOnly: true, refused: "address translation"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := NewSnapshot("gw", submarinerv1.NodeFacts{PrivateIP: "10.89.1.11", MTU: 1500}, true, decode(t, a)...)
			s.Paths = map[string]Path{name: test.path}
			v, err := newView(s)
			require.NoError(t, err)
			require.Len(t, v.remote, 1)
			p := v.remote[0]
			require.Equal(t, test.address, p.Address.String())
			require.Equal(t, test.path.NAT, p.NATed)
			require.Equal(t, test.path.MTU, p.MTU)
			require.Equal(t, test.inboundOnly, p.InboundOnly)
			if test.refused != "" {
				require.Len(t, v.refused, 1)
				require.ErrorContains(t, v.refused[0].err, test.refused)
			} else {
				require.Empty(t, v.refused)
			}
		})
	}
}

// A gateway looks for others while it is the active one, and publishes where it can
// be reached from outside.
func TestGatewayLooksForPaths(t *testing.T) {
	w := newWorld(t, Gateway{}, "two-clusters")
	w.discovery = newDiscovery(nil, w.Log, func() {})
	w.public = &publicIP{nudge: func() {}, wake: make(chan struct{}, 1)}
	w.run(t)
	require.Len(t, w.discovery.paths(), 1)

	e := get(t, w, &submarinerv1.Endpoint{}, "east-submariner-cable-east-10-89-1-11")
	require.Empty(t, e.Spec.PublicIP)
	for _, k := range w.discovery.known {
		k.seenAs, k.seen, k.looks = netip.MustParseAddr("198.51.100.1"), 2, 2
	}
	w.run(t)
	e = get(t, w, e, e.Name)
	require.Equal(t, "198.51.100.1", e.Spec.PublicIP)

	w.discovery = newDiscovery(nil, w.Log, func() {}) // a restart
	w.run(t)
	require.Equal(t, "198.51.100.1", get(t, w, e, e.Name).Spec.PublicIP)

	w.elector.set(following)
	w.run(t)
	require.Empty(t, w.discovery.paths())
}

// Which public address is published: what most clusters see, and nothing that would cut
// this one off from others.
func TestPublishedIP(t *testing.T) {
	const outside, lie = "198.51.100.1", "203.0.113.9"
	for _, test := range []struct {
		name      string
		votes     string // "cluster:looks:address", the address empty for no translation
		published string
		want      string
	}{
		{name: "nobody to look for", published: outside, want: outside},
		{name: "said once", votes: "b:1:" + outside},
		{name: "said twice", votes: "b:2:" + outside, want: outside},
		{name: "all", votes: "b:2:" + outside + " c:2:" + outside, want: outside},
		{name: "after a restart", votes: "b:1: c:1:", published: outside, want: outside},
		{name: "one of two", votes: "b:2:" + lie + " c:2:"},
		{name: "one of two lies", votes: "b:2:" + lie + " c:2:" + outside, published: outside, want: outside},
		{name: "one of three lies", votes: "b:2:" + lie + " c:2:" + outside + " d:2:" + outside, published: outside, want: outside},
		{name: "one of three denies", votes: "b:2: c:2:" + outside + " d:2:" + outside, published: outside, want: outside},
		{name: "one that has many gateways", votes: "b:2:" + lie + " b:2:" + lie + " b:2:" + lie + " c:2: d:2:"},
		{name: "one whose gateways differ", votes: "b:2:" + lie + " b:2: c:2:" + outside, published: outside, want: outside},
		{name: "it moved", votes: "b:2:203.0.113.9 c:2:203.0.113.9 d:2:" + outside, published: outside, want: lie},
		{name: "no translation any more", votes: "b:2: c:2: d:2:" + outside, published: outside},
		{name: "no answer with a key", votes: "b:2:none", published: outside, want: outside},
		{name: "our pods", votes: "b:2:10.111.0.5"},
		{name: "our Services", votes: "b:2:10.101.0.5"},
		{name: "our node", votes: "b:2:10.89.1.12"},
		{name: "our node's network", votes: "b:2:10.89.1.77"},
		{name: "another's network", votes: "b:2:10.112.0.5"},
		{name: "another's gateway", votes: "b:2:10.89.2.11"},
		{name: "published by mistake", votes: "b:1:", published: "10.112.0.5"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDiscovery(nil, slog.New(slog.DiscardHandler), func() {})
			d.own = cable.Networks{
				Pods: prefixes("10.111.0.0/16"), Services: prefixes("10.101.0.0/16"), Needed: prefixes("10.89.1.0/24"),
				Nodes: []netip.Addr{netip.MustParseAddr("10.89.1.12")},
			}
			d.peers = []cable.Peer{{Gateway: cable.Gateway{Cluster: "b", PrivateIP: netip.MustParseAddr("10.89.2.11"), Subnets: prefixes("10.112.0.0/16")}}}
			for i, text := range strings.Fields(test.votes) {
				f := strings.Split(text, ":")
				k := &known{peer: cable.Peer{Gateway: cable.Gateway{Cluster: f[0]}}}
				k.looks, _ = strconv.Atoi(f[1])
				if f[2] != "none" {
					k.seenAs, _ = netip.ParseAddr(f[2])
					k.seen = k.looks
				}
				d.known[strconv.Itoa(i)] = k
			}
			published, _ := netip.ParseAddr(test.published)
			want, _ := netip.ParseAddr(test.want)
			require.Equal(t, want, d.publicIP(published))
		})
	}
}

func prefixes(all ...string) (out []netip.Prefix) {
	for _, text := range all {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// Only who has a cable bars addresses: a member that was refused announces what it likes.
func TestBarred(t *testing.T) {
	d := newDiscovery(nil, slog.New(slog.DiscardHandler), func() {})
	west := cable.Peer{Gateway: cable.Gateway{Name: "west", Cluster: "west", PrivateIP: netip.MustParseAddr("10.89.2.11")}}
	thief := cable.Peer{Gateway: cable.Gateway{Name: "thief", Cluster: "thief", Subnets: prefixes("10.89.2.0/24")}}
	d.set(search{peers: []cable.Peer{west, thief}})
	require.Empty(t, d.barred(west.PrivateIP))
	d.set(search{peers: []cable.Peer{west, thief}, cables: []cable.Cable{{Peer: thief}}})
	require.Equal(t, "it is in 10.89.2.0/24 of cluster thief", d.barred(west.PrivateIP))
}

// Who was refused for what it announces does not keep others from being looked for, nor
// is it looked for itself.
func TestRefusedBarNothing(t *testing.T) {
	w := newWorld(t, Gateway{}, "incumbent")
	w.discovery = newDiscovery(nil, w.Log, func() {})
	w.public = &publicIP{nudge: func() {}, wake: make(chan struct{}, 1)}
	w.run(t)
	require.Len(t, w.discovery.paths(), 1)
	for _, ip := range []string{"10.89.2.11", "192.0.2.2"} {
		require.Empty(t, w.discovery.barred(netip.MustParseAddr(ip)))
	}
}
