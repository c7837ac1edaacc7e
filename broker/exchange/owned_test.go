package exchange

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// Kinds with a cluster ID in their spec are selected, of every API group; the others are not.
func TestOwnedRules(t *testing.T) {
	toy := endpoints()
	beacon := endpoints()
	toy.GroupVersion.Group = "toys.example.com"
	toy.Resource = "toys"
	beacon.GroupVersion.Group = "toys.example.com"
	beacon.Resource = "beacons"
	beacon.Named.ClusterID = nil
	got := map[string][]string{}
	for _, r := range append(Kinds(), toy, beacon).OwnedRules(admissionv1.Update) {
		require.Equal(t, []admissionv1.OperationType{admissionv1.Update}, r.Operations)
		got[r.APIGroups[0]] = r.Resources
	}
	require.Equal(
		t,
		map[string][]string{
			"submariner.io":    {"clusters", "endpoints", "exportedservices"},
			"toys.example.com": {"toys"},
		},
		got,
	)
}
