package broker_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"subctl/broker"
)

// An API server of Kubernetes 1.29 does not serve the policies.
func TestPreflightNeedsPolicies(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	c := fake.NewClientBuilder().WithRESTMapper(mapper).Build()
	require.EqualError(t, broker.Preflight(t.Context(), c, nil), "the API server has no admission policies (admissionregistration.k8s.io/v1), "+
		"which keep clusters apart on a broker: use Kubernetes 1.30 or later")
}
