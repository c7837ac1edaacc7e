package look_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"subctl/internal/look"
)

// The ClusterRole view does not contain nodes: asking for it would not help.
func TestNodesDenied(t *testing.T) {
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			if _, nodes := list.(*corev1.NodeList); nodes {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("alice may not"))
			}
			return nil
		},
	}).Build()
	err := look.ReadWorkloads(t.Context(), c, &look.Site{})
	require.ErrorContains(t, err, "reading the nodes: ")
	require.ErrorContains(t, err,
		"ask an administrator for the right to list nodes, which the ClusterRole view does not contain")
}
