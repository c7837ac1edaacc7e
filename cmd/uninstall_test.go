package cmd

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/cluster"
	"subctl/internal/cli"
)

// refuses has uninstall refuse to delete a policy that two other clusters need, until the
// broker has adopted it.
func (w *joinWorld) refuses(t *testing.T) {
	objects := []client.Object{copied(cablePolicy("default", " |  | vxlan"), submarinerv1.BrokerID, "default")}
	for _, id := range []string{"east", "cloud"} {
		for _, o := range clusterObjects(cluster.Namespace, id, id, "env=production", "vxlan,wireguard,ipsec",
			"default") {
			if c, ok := o.(*submarinerv1.Cluster); ok {
				c.Spec.ServiceCIDR = []string{}
				c.Spec.ClusterCIDR = []string{}
				c.Spec.GlobalCIDR = []string{}
			}
			objects = append(objects, o)
		}
	}
	kept := cablePolicy("kept", "env=production | env | ipsec")
	onHub := kept.DeepCopy()
	onHub.Namespace = submarinerv1.BrokerNamespace
	onHub.Labels = map[string]string{submarinerv1.ClusterIDLabel: "west"}
	require.NoError(t, brokertest.Filling(w.hubC).Create(t.Context(), brokertest.InSlot(onHub, "west", 0)))
	for _, o := range append(objects, kept) {
		require.NoError(t, w.memberC.Create(t.Context(), o))
	}
	shared(kept, "default")
	kept.Status.Conditions[0].Reason, kept.Status.Conditions[0].LastTransitionTime = "Shared", kept.CreationTimestamp
	require.NoError(t, w.memberC.Status().Update(t.Context(), kept))

	before := w.state(t)
	const table = "CLUSTERS       NOW               THEN\ncloud - east   ipsec (kept)      vxlan (default)\n" +
		"cloud - west   vxlan (default)   none: cluster west is not a member\neast - west    vxlan (default)   none: " +
		"cluster west is not a member\n"
	const why = "1 pair of other clusters would change their cable, because policies that were created on this cluster are deleted with it: 1 pair of clusters would lose encryption:"
	r := w.run(t, "uninstall", "--yes")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Equal(t, table, r.stdout)
	require.Contains(
		t,
		r.stderr,
		"Error: "+why+"\n  cloud - east: ipsec (kept) → vxlan (default), not encrypted\nnothing was changed: "+
			"let the broker keep these policies with subctl cable-policy adopt --from west --context BROKER, or continue with --force=policies\n",
	)
	r = w.run(t, "uninstall", "--dry-run")
	require.Equal(t, cli.ExitTrouble, r.code)
	require.Contains(t, r.stdout, table+"remove from the cluster's DNS what subctl has added\ndelete Submariner")
	require.Contains(t, r.stderr, "without --force=policies, uninstall is refused")
	require.Equal(t, cli.ExitTrouble, w.run(t, "uninstall", "--dry-run", "--force=nodes,broker").code,
		"they are other obstacles")
	require.Equal(t, result{code: cli.ExitUsage, stderr: "Error: --force=x names no obstacle: use policies, nodes, " +
		"broker, or all\n"}, w.run(t, "uninstall", "--force=x"))
	require.Equal(t, cli.ExitDone, w.run(t, "uninstall", "--dry-run", "--force=all").code)
	require.Equal(t, before, w.state(t))

	r = w.run(t, "cable-policy", "adopt", "kept", "--broker-info", w.file, "--kubeconfig", w.hub.Kubeconfig())
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.NoError(t, w.hubC.Get(t.Context(), client.ObjectKeyFromObject(onHub), onHub))
	require.True(t, exchange.Kinds().IsEmpty(onHub), "%v", onHub)
	adoptedOnHub := &v1alpha1.CablePolicies{}
	require.NoError(t,
		w.hubC.Get(t.Context(), client.ObjectKey{Namespace: submarinerv1.BrokerNamespace, Name: "kept"}, adoptedOnHub))
	require.Empty(t, adoptedOnHub.Labels)
	// The gateway copies it, and reports that the name is taken.
	kept.Status.ClusterSets = nil
	require.NoError(t, w.memberC.Status().Update(t.Context(), kept))
	adopted := copied(cablePolicy("kept.default", "env=production | env | ipsec"), submarinerv1.BrokerID, "default")
	require.NoError(t, w.memberC.Create(t.Context(), adopted))
}
