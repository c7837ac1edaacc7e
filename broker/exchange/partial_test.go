package exchange_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/exchange"
	"subctl/policy"
)

// While a clusterset cannot be read, the copy of a Cluster that is new says so: the Cluster may be
// in that clusterset, too, whose policies would count for it.
func TestCopiesFromSomeClusterSets(t *testing.T) {
	w := &world{local: map[string]client.Object{}, sets: map[string]map[string]client.Object{"default": {}, "lab": {}}}
	west := cluster("west", "west")
	west.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: "west"})
	w.sets["default"][id(west)] = west
	step := func(labKnown bool) (sets, unread []string) {
		s := w.snapshot("east")
		for i := range s.Sets {
			s.Sets[i].Known = labKnown || s.Sets[i].Name != "lab"
		}
		writes, _ := plan(exchange.Kinds(), s)
		w.apply(t, writes)
		c := w.local[id(west)].(*submarinerv1.Cluster)
		require.Equal(t, c.ClusterSets(), policy.ClusterOf(c).Sets)
		return c.ClusterSets(), c.UnreadClusterSets()
	}
	for range 2 {
		sets, unread := step(false)
		require.Equal(t, []string{"default"}, sets)
		require.Equal(t, []string{"lab"}, unread)
	}
	sets, unread := step(true)
	require.Equal(t, []string{"default"}, sets)
	require.Empty(t, unread)
	sets, unread = step(false)
	require.Equal(t, []string{"default"}, sets)
	require.Empty(t, unread, "it was looked for there before")
	w.sets["lab"][id(west)] = west
	step(true)
	sets, unread = step(false)
	require.Equal(t, []string{"default", "lab"}, sets)
	require.Empty(t, unread)
}
