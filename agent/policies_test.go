package agent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// A policy that cannot be understood is said to be so, once, where a person looks.
func TestPolicyEvents(t *testing.T) {
	w := newWorld(t, roles.Gateway(), "two-clusters")
	events := &recorder{}
	w.events = events
	p := &v1alpha1.CablePolicies{
		ObjectMeta: metav1.ObjectMeta{Name: "lab", Namespace: submarinerv1.OperatorNamespace},
		ConnectionPolicies: []v1alpha1.CablePolicySpec{
			{
				CableDriver:  "vxlan",
				CableOptions: &v1alpha1.CableOptions{Metadata: v1alpha1.CableOptionsSource{Name: "tuned"}},
			},
		},
	}
	require.NoError(t, w.Client.Create(t.Context(), p))
	w.run(t)
	w.run(t)
	const missing = "the settings copied before stay in force: spec[0].options.metadata: ConfigMap tuned: not found in namespace submariner-operator: create it, or remove its name from the policy"
	want := []recorded{{"lab", "Warning BadConfigMap", missing}}
	require.Equal(t, want, events.got)

	p = get(t, w, &v1alpha1.CablePolicies{}, "lab")
	p.ConnectionPolicies[0] = v1alpha1.CablePolicySpec{CableDriver: "gre"}
	require.NoError(t, w.Client.Update(t.Context(), p))
	p.Status.ClusterSets = []string{"default"}
	require.NoError(t, w.Client.Status().Update(t.Context(), p))
	w.run(t)
	w.run(t)
	const mistake = `what was shared before stays in force: spec[0].name: unknown cable driver "gre": use one of vxlan, wireguard, vxlan+wireguard, ipsec, vxlan+ipsec`
	kept := recorded{
		"gw",
		"Warning CableKept",
		"the cable to cluster west stays vxlan: " + strings.Replace(
			strings.TrimPrefix(mistake, "what was shared before stays in force: "), "spec[0].name", "cable policy lab",
			1),
	}
	require.Equal(t, append(want, kept, recorded{"lab", "Warning Mistake", mistake}), events.got)
}
