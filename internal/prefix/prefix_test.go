package prefix

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// list parses networks, separated by spaces.
func list(text string) []netip.Prefix { return Valid(strings.Fields(text)) }

func TestCovers(t *testing.T) {
	for _, test := range []struct {
		networks, p      string
		overlaps         bool
		covers, together bool
		contains         bool
	}{
		{"", "10.1.0.0/16", false, false, false, false},
		{"10.0.0.0/8", "10.1.0.0/16", true, true, true, true},
		{"10.1.0.0/16", "10.1.0.0/16", true, true, true, true},
		{"10.1.0.0/17 10.1.128.0/17", "10.1.0.0/16", true, false, true, true},
		{"10.1.128.0/17", "10.1.0.0/16", true, false, false, false},
		{"10.2.0.0/16", "10.1.0.0/16", false, false, false, false},
		{"fd00::/9 fd80::/9", "fd00::/8", true, false, true, true},
		{"::/0", "10.1.0.0/16", false, false, false, false},
	} {
		p := netip.MustParsePrefix(test.p)
		networks := list(test.networks)
		require.Equal(t, test.overlaps, Overlaps(networks, p), "%v", test)
		require.Equal(t, test.covers, Covers(networks, p), "%v", test)
		require.Equal(t, test.together, CoverTogether(networks, p), "%v", test)
		require.Equal(t, test.contains, Contains(networks, p.Addr()), "%v", test)
	}
}

func TestWithout(t *testing.T) {
	for _, test := range []struct{ p, n, want string }{
		{"10.0.0.0/30", "10.0.0.2/32", "10.0.0.0/31,10.0.0.3/32"},
		{"10.0.0.0/8", "192.0.2.0/24", "10.0.0.0/8"},
		{"10.1.0.0/16", "10.0.0.0/8", ""},
		{"fd00::/8", "fd80::/9", "fd00::/9"},
	} {
		require.Equal(t, test.want, Format(Without(netip.MustParsePrefix(test.p), netip.MustParsePrefix(test.n))))
	}
}

func TestWidest(t *testing.T) {
	nets := list("10.2.0.0/16 10.1.7.0/24 10.1.0.0/16 10.1.0.0/16 192.0.2.1/32 10.1.0.0/24")
	require.Equal(t, "10.1.0.0/16,10.2.0.0/16,192.0.2.1/32", Format(Widest(nets)))
	require.Equal(t, "10.2.0.0/16", nets[0].String(), "the argument stays as it is")
	require.Nil(t, Widest(nil))
}

// Of values with the same network the first one stays.
func TestWidestBy(t *testing.T) {
	type named struct{ net, name string }
	all := []named{{"10.2.0.0/16", "a"}, {"10.2.0.0/16", "b"}, {"10.1.0.0/24", "c"}, {"10.1.0.0/16", "d"}}
	widest := WidestBy(all, func(n named) netip.Prefix { return netip.MustParsePrefix(n.net) })
	require.Equal(t, []named{{"10.1.0.0/16", "d"}, {"10.2.0.0/16", "a"}}, widest)
}

func TestAround(t *testing.T) {
	for networks, want := range map[string]string{
		"10.1.0.0/16":                         "10.1.0.0/16",
		"10.1.0.0/16 10.0.0.0/8":              "10.0.0.0/8",
		"10.3.7.0/24 10.0.0.0/16 10.1.0.0/16": "10.0.0.0/14",
		"10.0.0.0/8 240.0.0.0/8":              "0.0.0.0/0",
	} {
		require.Equal(t, want, Around(list(networks)).String())
	}
}

func TestContainsFunc(t *testing.T) {
	in := ContainsFunc(list("10.1.0.0/16 10.2.3.0/24 fd00::/8"))
	for ip, want := range map[string]bool{
		"10.1.2.3": true, "10.2.3.4": true, "10.2.4.4": false, "fd00::1": true, "fe80::1": false,
	} {
		require.Equal(t, want, in(netip.MustParseAddr(ip)), ip)
	}
	require.False(t, ContainsFunc(nil)(netip.MustParseAddr("10.1.2.3")))
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"10.1.2.3/16": "10.1.2.3/16", "10.1.2.3": "10.1.2.3/32", "fd00::1": "fd00::1/128",
		"fe80::1%eth0": "", "10.1.2.3/33": "", "west": "", "": "",
	} {
		p, err := Parse(text)
		require.Equal(t, want == "", err != nil, "%q: %v", text, err)
		if err == nil {
			require.Equal(t, want, p.String())
		}
	}
	require.Equal(t, "10.1.0.0/16", Format(list("10.1.2.3/16 10.1.2.3 west")), "host bits, an address, and text")
}
