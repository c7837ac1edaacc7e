package cmd

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
)

// Upstream's tools read these fields of the status whatever their values.
func (w *joinWorld) statusForUpstream(t *testing.T) {
	sub := &unstructured.Unstructured{}
	sub.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Submariner"))
	require.NoError(t,
		w.memberC.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: v1alpha1.SubmarinerName}, sub))
	status, _, err := unstructured.NestedMap(sub.Object, "status")
	require.NoError(t, err)
	require.Equal(t, "west", status["clusterID"])
	spec, _, err := unstructured.NestedBool(sub.Object, "spec", "natEnabled")
	require.NoError(t, err)
	require.Equal(t, spec, status["natEnabled"])
	zero, err := json.Marshal(v1alpha1.SubmarinerStatus{})
	require.NoError(t, err)
	require.JSONEq(t, `{"clusterID":"","natEnabled":false}`, string(zero))
}
