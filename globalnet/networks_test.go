package globalnet_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/globalnet"
)

func recorded(networks ...string) (r globalnet.Record) {
	for i, n := range networks {
		r = append(r,
			globalnet.Entry{ClusterID: fmt.Sprintf("c%d", i), Networks: []netip.Prefix{netip.MustParsePrefix(n)}})
	}
	return r
}

func TestChoose(t *testing.T) {
	p := netip.MustParsePrefix
	for name, test := range map[string]struct {
		info    globalnet.Info
		request globalnet.NetworkRequest
		record  globalnet.Record
		want    string // a network or an error
	}{
		"the first": {slash8, globalnet.NetworkRequest{}, nil, "242.0.0.0/16"},
		"the first gap": {
			slash8,
			globalnet.NetworkRequest{},
			recorded("242.0.0.0/16", "242.2.0.0/16"),
			"242.1.0.0/16",
		},
		"aligned to its size": {
			slash8,
			globalnet.NetworkRequest{Size: 1 << 18},
			recorded("242.0.0.0/24"),
			"242.4.0.0/14",
		},
		"rounded up": {
			slash8,
			globalnet.NetworkRequest{Size: 257},
			recorded("242.0.0.0/24"),
			"242.0.2.0/23",
		},
		"past a larger one": {slash8, globalnet.NetworkRequest{}, recorded("242.0.0.0/12"), "242.16.0.0/16"},
		"others are outside": {
			slash8,
			globalnet.NetworkRequest{},
			recorded("243.0.0.0/16", "10.0.0.0/8"),
			"242.0.0.0/16",
		},
		"others contain all": {
			slash8,
			globalnet.NetworkRequest{},
			recorded("242.0.0.0/8"),
			"no network of 65536 addresses is free in the range 242.0.0.0/8 of the broker, in which 1 clusters have networks: let the administrator of the broker enlarge the range with subctl deploy-broker --globalnet --globalnet-cidr-range 242.0.0.0/7",
		},
		"its own stays": {
			slash8,
			globalnet.NetworkRequest{Cluster: "c1"},
			recorded("242.0.0.0/16", "242.9.0.0/20"),
			"242.9.0.0/20",
		},
		"its own stays, by size": {
			slash8,
			globalnet.NetworkRequest{Cluster: "c1", Size: 4000},
			recorded("242.0.0.0/16", "242.9.0.0/20"),
			"242.9.0.0/20",
		},
		"another size": {
			slash8,
			globalnet.NetworkRequest{Cluster: "c1", Size: 8192},
			recorded("242.0.0.0/16", "242.9.0.0/20"),
			"242.1.0.0/19",
		},
		"as before": {slash8, globalnet.NetworkRequest{Before: p("242.7.0.0/16")}, nil, "242.7.0.0/16"},
		"as before, but taken": {
			slash8,
			globalnet.NetworkRequest{Before: p("242.7.0.0/16")},
			recorded("242.7.8.0/24"),
			"242.0.0.0/16",
		},
		"as before, but not here": {slash8, globalnet.NetworkRequest{Before: p("10.7.0.0/16")}, nil, "242.0.0.0/16"},
		"explicit": {
			slash8,
			globalnet.NetworkRequest{Network: p("168.254.0.0/15")},
			recorded("242.0.0.0/16"),
			"168.254.0.0/15",
		},
		"explicit, its own": {
			slash8,
			globalnet.NetworkRequest{Cluster: "c0", Network: p("242.0.0.0/17")},
			recorded("242.0.0.0/16"),
			"242.0.0.0/17",
		},
		"explicit, but taken": {
			slash8,
			globalnet.NetworkRequest{Network: p("242.0.8.0/24")},
			recorded("242.0.0.0/16"),
			`global network 242.0.8.0/24 overlaps 242.0.0.0/16 of cluster "c0": choose another one, or omit --globalnet-cidr to get a free one`,
		},
		"explicit, contains one": {
			slash8,
			globalnet.NetworkRequest{Network: p("242.0.0.0/8")},
			recorded("242.3.0.0/16"),
			`global network 242.0.0.0/8 overlaps 242.3.0.0/16 of cluster "c0": choose another one, or omit --globalnet-cidr to get a free one`,
		},
		"more than half": {
			slash15,
			globalnet.NetworkRequest{Size: 65537},
			nil,
			"a global network of 131072 addresses is more than half of the range 242.0.0.0/15 of the broker: ask for at most 65536 with --globalnet-cluster-size, or let the administrator of the broker enlarge the range with subctl deploy-broker --globalnet --globalnet-cidr-range 242.0.0.0/14",
		},
		"full": {
			slash15,
			globalnet.NetworkRequest{},
			recorded("242.0.0.0/16", "242.1.0.0/24"),
			"no network of 65536 addresses is free in the range 242.0.0.0/15 of the broker, in which 2 clusters have networks: let the administrator of the broker enlarge the range with subctl deploy-broker --globalnet --globalnet-cidr-range 242.0.0.0/14, or join with --globalnet-cluster-size 32768",
		},
		"full, and the network twice as large, too": {
			globalnet.Info{Range: p("242.0.0.0/27"), ClusterSize: 16},
			globalnet.NetworkRequest{},
			recorded("242.0.0.0/16"),
			"no network of 16 addresses is free in the range 242.0.0.0/27 of the broker, in which 1 clusters have networks: let the administrator of the broker enlarge the range with subctl deploy-broker --globalnet --globalnet-cidr-range 242.0.0.0/15",
		},
		"much larger than the range": {
			globalnet.Info{Range: p("242.0.0.0/27"), ClusterSize: 16},
			globalnet.NetworkRequest{Size: 4096},
			nil,
			"a global network of 4096 addresses is more than half of the range 242.0.0.0/27 of the broker: ask for at most 16 with --globalnet-cluster-size, or let the administrator of the broker enlarge the range with subctl deploy-broker --globalnet --globalnet-cidr-range 242.0.0.0/19",
		},
		"full to the edge of what can be used": {
			globalnet.Info{Range: p("242.0.0.0/7"), ClusterSize: 1 << 24},
			globalnet.NetworkRequest{},
			recorded("242.0.0.0/8", "243.0.0.0/8"),
			"no network of 16777216 addresses is free in the range 242.0.0.0/7 of the broker, in which 2 clusters have networks: let the administrator of the broker enlarge the range with subctl deploy-broker --globalnet --globalnet-cidr-range NETWORK, or join with --globalnet-cidr, which may be outside the range",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.info.Choose(test.request, test.record)
			if err != nil {
				require.EqualError(t, err, test.want)
				return
			}
			require.Equal(t, test.want, got.String())
		})
	}
}

var (
	slash8  = globalnet.Info{Range: netip.MustParsePrefix("242.0.0.0/8"), ClusterSize: 65536}
	slash15 = globalnet.Info{Range: netip.MustParsePrefix("242.0.0.0/15"), ClusterSize: 65536}
)

// Whatever clusters join, leave and change, no two of them ever have a common address, and what is
// free is found.
func TestNetworksNeverOverlap(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		info, err := globalnet.Parse(fmt.Sprintf("10.%d.0.0/%d", random.IntN(16)*16, 12+random.IntN(10)), 16)
		require.NoError(t, err)
		var r globalnet.Record
		for range 200 {
			id := fmt.Sprintf("c%d", random.IntN(30))
			if random.IntN(3) == 0 {
				r = r.With(globalnet.Entry{ClusterID: id})
				continue
			}
			size := uint(1 + random.IntN(5000))
			n, err := info.Choose(globalnet.NetworkRequest{Cluster: id, Size: size}, r)
			if err != nil {
				require.ErrorContains(t, err, "enlarge the range")
				continue
			}
			require.True(t, info.Range.Contains(n.Addr()) && n.Bits() > info.Range.Bits(), "%v in %v", n, info.Range)
			require.Equal(t, n.Masked(), n)
			require.GreaterOrEqual(t, uint(1)<<(32-n.Bits()), size)
			for _, e := range r {
				require.False(t, e.ClusterID != id && e.Networks[0].Overlaps(n), "seed %d: %v of %s overlaps %v of %s",
					seed, n, id, e.Networks[0], e.ClusterID)
			}
			r = r.With(globalnet.Entry{ClusterID: id, Networks: []netip.Prefix{n}})
		}
	}
}

// The record has upstream's format, and what upstream wrote is read.
func TestRecordOfNetworks(t *testing.T) {
	r, err := globalnet.ParseRecord(`[{"cluster_id":"east","global_cidr":["242.0.0.0/16"]}]`)
	require.NoError(t, err)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("242.0.0.0/16")}, r.Find("east").Networks)
	r = r.With(
		globalnet.Entry{
			ClusterID: "west",
			Networks:  []netip.Prefix{netip.MustParsePrefix("242.1.0.0/16")},
			Account:   "uid",
		},
	).With(globalnet.Entry{ClusterID: "east"})
	text, err := r.Format()
	require.NoError(t, err)
	require.Equal(t,
		"[\n\t{\n\t\t\"cluster_id\": \"west\",\n\t\t\"global_cidr\": [\n\t\t\t\"242.1.0.0/16\"\n\t\t],\n\t\t\"account\": \"uid\"\n\t}\n]",
		text)
	again, err := globalnet.ParseRecord(text)
	require.NoError(t, err)
	require.Equal(t, r, again)
	for text, want := range map[string]string{
		"":                        "",
		"[]":                      "",
		"{}":                      "not a list",
		`[{"global_cidr":["x"]}]`: "not a list",
		`[{"cluster_id":"a","global_cidr":["242.0.0.1/16"]}]`: `cluster "a" has "242.0.0.1/16"`,
	} {
		_, err := globalnet.ParseRecord(text)
		if want == "" {
			require.NoError(t, err, text)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

func TestParseNetwork(t *testing.T) {
	for text, want := range map[string]string{
		"242.1.0.0/16":     "",
		" 168.254.0.0/15 ": "",
		"242.1.0.0/28":     "",
		"242.1.0.0":        "is not an IPv4 network: write it like 242.1.0.0/16, whose number of addresses is a power of two",
		"242.1.0.0/255":    "is not an IPv4 network",
		"fd00::/64":        "is not an IPv4 network",
		"242.1.0.0/15":     "does not start at a multiple of its size: did you mean 242.0.0.0/15?",
		"242.1.0.0/29":     "is too small: a cluster needs at least 16 addresses",
		"242.0.0.0/7":      "is larger than any cluster: at most a /8 is accepted",
		"240.7.0.0/16":     "overlaps the addresses 240.0.0.0/8 of our VXLAN devices between nodes: use another one, such as 242.1.0.0/16",
		"241.7.0.0/16":     "overlaps the addresses 241.0.0.0/8 of our VXLAN devices between gateways",
		"224.0.0.0/8":      "overlaps the multicast addresses 224.0.0.0/4",
		"169.254.0.0/16":   "overlaps the link-local addresses 169.254.0.0/16",
		"127.0.0.0/8":      "overlaps the loopback addresses 127.0.0.0/8",
		"255.255.255.0/24": "overlaps the broadcast addresses 255.255.255.255/32",
		"0.0.0.0/8":        "overlaps the unspecified addresses 0.0.0.0/8",
	} {
		_, err := globalnet.ParseNetwork(text)
		if want == "" {
			require.NoError(t, err, text)
		} else {
			require.ErrorContains(t, err, want, text)
		}
	}
}
