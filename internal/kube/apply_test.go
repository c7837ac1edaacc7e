package kube

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A conflict with the ResourceQuota of a namespace, which others change at the same time, does not
// fail a command.
func TestApplyOutlastsConflicts(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "resourcequotas"}, "broker",
		errors.New("the object has been modified"))
	conflicts := 2
	calls := 0
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(
			ctx context.Context,
			_ client.WithWatch,
			_ runtime.ApplyConfiguration,
			_ ...client.ApplyOption,
		) error {
			if calls++; calls <= conflicts {
				return conflict
			}
			return nil
		},
	}).Build()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "cluster-east", Namespace: "broker"}}
	require.NoError(t, Apply(t.Context(), c, FieldOwner, sa))
	require.Equal(t, 3, calls)

	conflicts = 1000
	calls = 0
	require.ErrorContains(t, Apply(t.Context(), c, FieldOwner, sa), "applying ServiceAccount broker/cluster-east")
	require.Less(t, calls, 10)
}
