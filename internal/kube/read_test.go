package kube_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"subctl/internal/kube"
)

// An error names the kind and the object, and no type of Go.
func TestOptionalDenied(t *testing.T) {
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "clusterroles"}, "agents", nil)
		},
	}).Build()
	_, err := kube.Optional(t.Context(), c, &rbacv1.ClusterRole{}, client.ObjectKey{Name: "agents"})
	require.EqualError(t, err, "reading ClusterRole agents: clusterroles \"agents\" is forbidden: <nil>")
}
