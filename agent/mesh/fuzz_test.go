package mesh_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
)

// FuzzCluster: whatever another cluster writes into its Cluster object, and whatever labels and
// annotations it has, nothing panics, the pairs of others stay as they are, and no packet that
// is not for its networks is dropped because of it.
func FuzzCluster(f *testing.F) {
	for _, seed := range [][]string{
		{"thief", "10.150.0.0/16", "10.151.0.0/16", "", "", "", "a=b"},
		{"thief", "0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1", "", "", ""},
		{
			"thief",
			"10.111.0.0/16\n10.101.0.0/16",
			"10.112.0.0/16",
			"10.89.2.0/24",
			"AAAA",
			"default,blue",
			"submariner.io/x=y",
		},
		{"thief", "192.168.50.0/24", "198.51.100.0/24", "203.0.113.0/24", "x", ",,", "\x00=\xff"},
		{"east", "10.150.0.0/16", "", "", "", "", ""},
		{"west", "10.150.0.0/16", "", "", "", "", ""},
		{"", "", "", "", "", "", ""},
		{
			"thief",
			strings.Repeat("10.150.0.0/16\n", 500),
			"::/0",
			"x/y",
			strings.Repeat("A", 2000),
			"default!",
			"encryption=required",
		},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4], seed[5], seed[6])
	}
	f.Fuzz(func(t *testing.T, id, services, pods, global, key, sets, label string) {
		objs := announce(func(*submarinerv1.EndpointSpec) {})
		c := objs[0].(*submarinerv1.Cluster)
		k, v, _ := strings.Cut(label, "=")
		c.Labels = map[string]string{submarinerv1.ClusterIDLabel: id, k: v}
		c.Annotations = map[string]string{submarinerv1.ClusterSetsAnnotation: sets}
		split := func(s string) []string { return strings.Split(s, "\n") }
		c.Spec = submarinerv1.ClusterSpec{
			ClusterID:   id,
			ServiceCIDR: split(services),
			ClusterCIDR: split(pods),
			GlobalCIDR:  split(global),
			PublicKey:   key,
			ClusterSets: split(sets),
			Encryption:  submarinerv1.Encryption(v),
		}
		if id == "west" || id == "east" {
			return // the exchange copies no Cluster in the name of another, or of ours
		}
		for _, node := range []string{"gw", "worker"} {
			plain, _ := connectedTo(t, besides(t, node))
			for _, more := range []int{1, 2} { // without and with its Endpoint
				ids, state := connectedTo(t, besides(t, node, objs[:more]...))
				ids = slices.DeleteFunc(ids, func(s string) bool { return s == "thief" })
				require.Equal(t, plain, ids)
				_, before := connectedTo(t, besides(t, node))
				for _, ip := range needed {
					require.Equal(t, fate(before, "", ip), fate(state, "", ip), "packets to %s", ip)
				}
			}
		}
	})
}
