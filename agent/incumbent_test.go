package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
)

// Who holds a network keeps it while an agent restarts, too: that one takes over what the
// gateways report. Without a report the cluster that has been here longer gets it.
func TestHeldAfterRestart(t *testing.T) {
	for _, role := range roles.OfNodes() {
		t.Run(role.Name, func(t *testing.T) {
			gateway := newWorld(t, roles.Gateway(), "two-clusters")
			w := newWorld(t, role, "two-clusters")
			w.Client = gateway.Client
			w.reports = gateway.Client
			gateway.run(t)
			w.run(t)
			holds := w.holds(t, role.Owner)
			require.Contains(t, holds, "10.112.0.0/16")

			labels := map[string]string{submarinerv1.ClusterIDLabel: "elder"}
			require.NoError(t, w.Client.Create(t.Context(), &submarinerv1.Cluster{
				ObjectMeta: metav1.ObjectMeta{
					Name:      "elder",
					Namespace: submarinerv1.OperatorNamespace,
					Labels:    labels,
					Annotations: map[string]string{
						submarinerv1.ClusterSetsAnnotation: submarinerv1.DefaultClusterSet,
					},
					CreationTimestamp: metav1.NewTime(time.Unix(1, 0)),
				},
				Spec: submarinerv1.ClusterSpec{ClusterID: "elder"},
			}))
			require.NoError(t, w.Client.Create(t.Context(), &submarinerv1.Endpoint{
				ObjectMeta: metav1.ObjectMeta{Name: "elder", Namespace: submarinerv1.OperatorNamespace, Labels: labels},
				Spec: submarinerv1.EndpointSpec{
					ClusterID: "elder",
					CableName: "submariner-cable-elder",
					PrivateIP: "10.89.3.1",
					Backend:   "vxlan",
					Subnets:   []string{"10.112.7.0/24"},
				},
			}))
			w.run(t)
			require.Equal(t, holds, w.holds(t, role.Owner))

			w.memory = nil // a restart
			w.run(t)
			require.Equal(t, holds, w.holds(t, role.Owner))

			w.memory = nil
			require.NoError(t, w.Client.Delete(t.Context(), get(t, w, &submarinerv1.Gateway{}, "gw")))
			w.run(t)
			require.Contains(t, w.holds(t, role.Owner), "10.112.7.0/24")
		})
	}
}
