package discovery

import (
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/cable/natdiscovery"
	"subctl/internal/wake"
)

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
		{
			name:      "one of three lies",
			votes:     "b:2:" + lie + " c:2:" + outside + " d:2:" + outside,
			published: outside,
			want:      outside,
		},
		{
			name:      "one of three denies",
			votes:     "b:2: c:2:" + outside + " d:2:" + outside,
			published: outside,
			want:      outside,
		},
		{name: "one that has many gateways", votes: "b:2:" + lie + " b:2:" + lie + " b:2:" + lie + " c:2: d:2:"},
		{
			name:      "one whose gateways differ",
			votes:     "b:2:" + lie + " b:2: c:2:" + outside,
			published: outside,
			want:      outside,
		},
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
			d := New(nil, slog.New(slog.DiscardHandler), func() {})
			d.search.Own = cable.Networks{
				Pods: prefixes("10.111.0.0/16"), Services: prefixes("10.101.0.0/16"), Needed: prefixes("10.89.1.0/24"),
				Nodes: []netip.Addr{netip.MustParseAddr("10.89.1.12")},
			}
			d.search.Peers = []cable.Peer{
				{
					Gateway: cable.Gateway{
						Cluster:   "b",
						PrivateIP: netip.MustParseAddr("10.89.2.11"),
						Subnets:   prefixes("10.112.0.0/16"),
					},
				},
			}
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
			require.Equal(t, want, d.PublicIP(published))
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
	d := New(nil, slog.New(slog.DiscardHandler), func() {})
	west := cable.Peer{
		Gateway: cable.Gateway{Name: "west", Cluster: "west", PrivateIP: netip.MustParseAddr("10.89.2.11")},
	}
	thief := cable.Peer{Gateway: cable.Gateway{Name: "thief", Cluster: "thief", Subnets: prefixes("10.89.2.0/24")}}
	d.Set(Search{Peers: []cable.Peer{west, thief}})
	require.Empty(t, d.whyBarred(west.PrivateIP))
	d.Set(Search{Peers: []cable.Peer{west, thief}, Cables: []cable.Cable{{Peer: thief}}})
	require.Equal(t, "it is in 10.89.2.0/24 of cluster thief", d.whyBarred(west.PrivateIP))
}

// A gateway is looked for again when its questions say that it may be found now: what a
// translator keeps open for its answers, it does not keep open for long.
func TestHeard(t *testing.T) {
	west := cable.Gateway{Name: "west", PrivateIP: netip.MustParseAddr("10.0.1.1")}
	at := func(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }
	private := west.PrivateIP
	outside := netip.MustParseAddr("198.51.100.1")
	for _, test := range []struct {
		name   string
		known  known
		from   string
		forged bool
		again  bool
	}{
		{name: "never found", known: known{}, from: "198.51.100.1:20001", again: true},
		{
			name:  "found where it is",
			known: known{path: natdiscovery.Path{Done: true, Address: private}},
			from:  "10.0.1.1:4490",
		},
		{
			name:  "found, and heard from elsewhere",
			known: known{path: natdiscovery.Path{Done: true, Address: private}},
			from:  "198.51.100.1:20001",
		},
		{
			name:  "found before, but not in the last look",
			known: known{path: natdiscovery.Path{Done: true, Address: private}, missed: 1, looked: time.Now()},
			from:  "198.51.100.1:20001", again: true,
		},
		{
			name:  "the same, forged",
			known: known{path: natdiscovery.Path{Done: true, Address: private}, missed: 1, looked: time.Now()},
			from:  "198.51.100.1:20001", forged: true,
		},
		{
			name: "translated to another port",
			known: known{
				path:    natdiscovery.Path{Done: true, Address: outside, InboundOnly: true},
				learned: at("198.51.100.1:20001"),
			},
			from:  "198.51.100.1:20002",
			again: true,
		},
		{
			name: "translated to the same port",
			known: known{
				path:    natdiscovery.Path{Done: true, Address: outside, InboundOnly: true},
				learned: at("198.51.100.1:20001"),
			},
			from: "198.51.100.1:20001",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := test.known
			k.peer = cable.Peer{Gateway: west}
			k.port = 4490
			k.again = wake.NewSignal()
			k.recordQuestion(at(test.from), !test.forged)
			require.Equal(t, test.again, len(k.again) == 1)
		})
	}
}
