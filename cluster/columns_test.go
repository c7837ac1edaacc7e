package cluster_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/crds"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/internal/kubetest"
)

// "kubectl get" prints, for every kind, more than names and ages, and its columns have values.
func TestColumns(t *testing.T) {
	server := kubetest.Shared(t)
	server.InstallCRDs(t)
	c := server.Client(t)
	require.NoError(
		t,
		client.IgnoreAlreadyExists(
			c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.Namespace}})),
	)
	meta := metav1.ObjectMeta{
		Name:      "columns",
		Namespace: cluster.Namespace,
		Labels:    map[string]string{submarinerv1.ClusterIDLabel: "west"},
	}
	policies := &v1alpha1.CablePolicies{
		ObjectMeta:         meta,
		ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: "ipsec"}, {CableDriver: "vxlan"}},
	}
	broker := &v1alpha1.Broker{
		ObjectMeta: meta,
		Spec:       v1alpha1.BrokerSpec{Components: []string{"connectivity"}, GlobalnetCIDRRange: "242.0.0.0/8"},
	}
	for _, o := range []client.Object{policies, broker} {
		require.NoError(t, c.Create(t.Context(), o))
		t.Cleanup(func() { require.NoError(t, c.Delete(context.WithoutCancel(t.Context()), o)) })
	}
	policies.Status.Conditions = []metav1.Condition{
		{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Understood", LastTransitionTime: metav1.Now()},
	}
	require.NoError(t, c.Status().Update(t.Context(), policies))

	api, err := discovery.NewDiscoveryClientForConfig(server.Config())
	require.NoError(t, err)
	table := func(path string) metav1.Table {
		raw, err := api.RESTClient().Get().AbsPath(
			path).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Raw()
		require.NoError(t, err)
		var out metav1.Table
		require.NoError(t, json.Unmarshal(raw, &out))
		return out
	}
	all, err := crds.All()
	require.NoError(t, err)
	for _, crd := range all {
		got := table("/apis/" + crd.Spec.Group + "/" + crd.Spec.Versions[0].Name + "/" + crd.Spec.Names.Plural)
		var names []string
		for _, column := range got.ColumnDefinitions {
			names = append(names, column.Name)
		}
		require.GreaterOrEqual(t, len(names), 4, "%s: %v", crd.Name, names)
		require.Equal(t, "Age", names[len(names)-1], crd.Name)
		for _, row := range got.Rows {
			switch {
			case crd.Spec.Names.Plural == "cablepolicies" && row.Cells[0] == "columns":
				require.Equal(t, []any{"columns", "ipsec", "True", nil, "west"}, row.Cells[:5])
			case strings.HasPrefix(crd.Name, "brokers.") && row.Cells[0] == "columns":
				require.Equal(t, []any{"columns", `["connectivity"]`, nil, "242.0.0.0/8"}, row.Cells[:4])
			}
		}
	}
}
