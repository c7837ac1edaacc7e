package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"subctl/agent/parts"
	"subctl/agent/role"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/kube"
)

// hindered is a source that is synced when its result is sent.
type hindered chan error

func (hindered) Start(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	return nil
}

func (h hindered) WaitForSync(ctx context.Context) error {
	select {
	case err := <-h:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// forgetful is a cache of which informers are removed only.
type forgetful struct{ cache.Cache }

func (forgetful) RemoveInformer(context.Context, client.Object) error { return nil }

// While a kind cannot be read, the agent tells which one and why. A watch that fails is started
// again.
func TestGlobalWatchesTellWhatIsMissing(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	reader := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if list.GetObjectKind().GroupVersionKind().Kind == "ServiceList" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "",
					errors.New("the agent may not"))
			}
			return c.List(ctx, list, opts...)
		},
	})
	results := make(hindered)
	triggers := make(chan bool, 100)
	w := globalWatches{
		kinds: []role.Object{
			&corev1.Pod{},
			&corev1.Service{},
		}, cache: forgetful{}, reader: reader, scheme: scheme, overdue: 20 * time.Millisecond,
		trigger: func() { triggers <- true },
		watch:   func(role.Object, *lists) (source.SyncingSource, error) { return results, nil },
	}
	snap := role.NewSnapshot("node", &v1alpha1.Submariner{Spec: v1alpha1.SubmarinerSpec{GlobalCIDR: "242.7.0.0/16"}})
	_, err = w.follow(t.Context(), snap)
	require.ErrorIs(t, err, parts.ErrTooEarly)
	<-triggers
	_, err = w.follow(t.Context(), snap)
	require.ErrorContains(t, err, "listing objects of kind Service: services is forbidden: the agent may not")
	require.NotContains(t, err.Error(), "Pod")

	t.Log("a watch fails")
	results <- errors.New("it broke")
	<-triggers
	_, err = w.follow(t.Context(), snap)
	require.ErrorContains(t, err, "it broke")
	_, err = w.follow(t.Context(), snap)
	require.ErrorIs(t, err, parts.ErrTooEarly, "it is started again")
	results <- nil
	results <- nil
	require.Eventually(t, func() bool {
		l, err := w.follow(t.Context(), snap)
		return err == nil && l != nil
	}, 10*time.Second, time.Millisecond)
}
