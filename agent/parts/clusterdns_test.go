package parts

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/role"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/cluster/clusterdns"
	"subctl/internal/wake"
)

// The rights for the repair are those of the agent that does it.
func TestRepairAccount(t *testing.T) {
	require.Equal(t, cluster.ServiceDiscoveryName, clusterdns.Account)
}

// The agent repairs what join has changed, until somebody uninstalls or takes over.
func TestClusterDNS(t *testing.T) {
	var asked []string
	d := &clusterDNS{log: slog.New(slog.DiscardHandler), wake: wake.NewSignal()}
	d.repair = func(_ context.Context, address string) (bool, error) {
		asked = append(asked, address)
		return true, nil
	}
	for _, test := range []struct {
		name   string
		change func(*v1alpha1.Submariner)
		want   bool
	}{
		{"changed by join", func(*v1alpha1.Submariner) {}, true},
		{"changed elsewhere", func(s *v1alpha1.Submariner) {
			s.Annotations[clusterdns.Annotation] = string(clusterdns.Custom)
		}, false},
		{"not changed", func(s *v1alpha1.Submariner) { s.Annotations = nil }, false},
		{"--dns=false", func(s *v1alpha1.Submariner) {
			s.Spec.ServiceDiscovery = &v1alpha1.ServiceDiscoverySpec{LeaveDNS: true}
		}, false},
		{"without service discovery", func(s *v1alpha1.Submariner) { s.Spec.ServiceDiscoveryEnabled = false }, false},
		{"uninstalled", func(s *v1alpha1.Submariner) { s.DeletionTimestamp = &metav1.Time{} }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked = nil
			sub := &v1alpha1.Submariner{ObjectMeta: metav1.ObjectMeta{
				Name: v1alpha1.SubmarinerName, Namespace: cluster.Namespace,
				Annotations: map[string]string{clusterdns.Annotation: string(clusterdns.Corefile)},
			}}
			sub.Spec.ServiceDiscoveryEnabled = true
			test.change(sub)
			service := &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.DNSName},
				Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.53"},
			}
			s := role.NewSnapshot[client.Object]("any", sub, service)
			require.NoError(t, d.Observe(&s))
			d.refresh(t.Context())
			if test.want {
				require.Equal(t, []string{"10.96.0.53"}, asked)
			} else {
				require.Empty(t, asked)
			}
		})
	}
}
