package sdewan_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
)

// Rules with a priority come first, whenever they were created; the others as they were created.
func TestOrder(t *testing.T) {
	rule := func(name, priority string, second int64) sdewan.Rule {
		r := &batch.FirewallRule{Spec: batch.FirewallRuleSpec{Priority: batch.Priority(priority)}}
		r.Name = name
		r.CreationTimestamp = metav1.NewTime(time.Unix(1700000000+second, 0))
		return r
	}
	zone := &batch.FirewallZone{ObjectMeta: metav1.ObjectMeta{
		Name: "zone", CreationTimestamp: metav1.NewTime(time.Unix(1700000001, 0)),
	}}
	want := []sdewan.Rule{
		rule("z", "9", 9),
		rule("y", "10", 8),
		rule("a", "100", 7), // names, not times
		rule("b", "100", 1),
		rule("oldest", "", 0),
		zone,
		rule("b", "", 2),
		rule("c", "", 2),
		rule("a", "", 3),
	}
	got := slices.Clone(want)
	for range 20 {
		rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		slices.SortFunc(got, sdewan.Order)
		require.Equal(t, want, got)
	}
}

// "newtork", as the proposal's example has it, is read as network, with a warning.
func TestNewtork(t *testing.T) {
	z := &batch.FirewallZone{Spec: batch.FirewallZoneSpec{Newtork: []batch.NetworkName{"ovn-net1"}}}
	z.Name = "lan1"
	k, _ := sdewan.KindOf(z)
	misspelt, err := k.Render(z, networks)
	require.NoError(t, err)
	require.NoError(t, sdewan.Check(z))
	require.Equal(t, []string{"spec.newtork is read as spec.network: correct the spelling"},
		sdewan.Doubts(z, time.Now()))
	z.Spec.Network = z.Spec.Newtork
	z.Spec.Newtork = nil
	right, err := k.Render(z, networks)
	require.NoError(t, err)
	require.Equal(t, right, misspelt)
	require.Empty(t, sdewan.Doubts(z, time.Now()))
}
