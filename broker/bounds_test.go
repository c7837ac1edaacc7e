package broker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
)

// long is more than an object may have.
var long = strings.Repeat("x", 17<<10)

// with returns o after a change.
func with(o client.Object, change func(client.Object)) client.Object {
	change(o)
	return o
}

// many returns strings that take 17 KiB together.
func many(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%0*d", 17<<10/n, i)
	}
	return out
}

// A member that writes its own objects cannot make them large.
func TestHostileSizes(t *testing.T) {
	d := deploy(t, kubetest.Shared(t))
	east := d.Join(t, "east", "uid-east")
	edit := func(change func(*v1alpha1.CablePolicySpec)) client.Object {
		p := shared(d.NS, "east", "east")
		change(&p.ConnectionPolicies[0])
		return p
	}
	selector := func(values []string) v1alpha1.ClusterSelector {
		return v1alpha1.ClusterSelector{MatchExpressions: []v1alpha1.ClusterRequirement{{Key: "a", Operator: metav1.LabelSelectorOpNotIn, Values: values}}}
	}
	var values []v1alpha1.ClusterRequirement
	for range 2 {
		values = append(values, v1alpha1.ClusterRequirement{Key: "a", Operator: metav1.LabelSelectorOpNotIn, Values: many(17 << 10 / 63)[:200]})
	}
	for name, o := range map[string]client.Object{
		"annotation": with(cluster(d.NS, "east"), func(o client.Object) { o.SetAnnotations(map[string]string{"a": long}) }),
		"annotations": with(endpoint(d.NS, "east", "1"), func(o client.Object) {
			o.SetAnnotations(map[string]string{})
			for _, s := range many(500) {
				o.GetAnnotations()[s] = ""
			}
		}),
		"labels": with(cluster(d.NS, "east"), func(o client.Object) {
			for i, s := range many(1000) {
				o.GetLabels()[fmt.Sprint("l", i)] = s
			}
		}),
		"clustersets": with(cluster(d.NS, "east"), func(o client.Object) { o.(*submarinerv1.Cluster).Spec.ClusterSets = many(300) }),
		"networks":    with(cluster(d.NS, "east"), func(o client.Object) { o.(*submarinerv1.Cluster).Spec.GlobalCIDR = []string{long} }),
		"color":       with(cluster(d.NS, "east"), func(o client.Object) { o.(*submarinerv1.Cluster).Spec.ColorCodes = []string{long} }),
		"backend": with(endpoint(d.NS, "east", "1"), func(o client.Object) {
			for i, s := range many(20) {
				o.(*submarinerv1.Endpoint).Spec.BackendConfig[fmt.Sprint(i)] = s
			}
		}),
		"options": edit(func(r *v1alpha1.CablePolicySpec) {
			r.CableOptions = &v1alpha1.CableOptions{Data: map[string]string{"CableCustomConfig": long}}
		}),
		"selectors": edit(func(r *v1alpha1.CablePolicySpec) { r.LeftClusterSelector.MatchExpressions = values }),
		"both selectors": edit(func(r *v1alpha1.CablePolicySpec) {
			r.LeftClusterSelector, r.RightClusterSelector = selector(many(17 << 10 / 63)[:150]), selector(many(17 << 10 / 63)[:150])
		}),
	} {
		t.Run(name, func(t *testing.T) {
			err := east.Create(t.Context(), o)
			require.Truef(t, apierrors.IsForbidden(err), "%v", err)
			require.ErrorContains(t, err, o.GetName()+" has more than 16384 characters in its labels, annotations and spec")
		})
	}

	t.Log("what is just small enough")
	o := cluster(d.NS, "east")
	require.NoError(t, east.Create(t.Context(), o))
	patch := func(data string) error {
		return east.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(data)))
	}
	require.NoError(t, patch(`{"metadata":{"annotations":{"a":"`+long[:16000]+`"}}}`))
	require.ErrorContains(t, patch(`{"metadata":{"annotations":{"b":"`+long[:2000]+`"}}}`), "more than 16384 characters")
	require.NoError(t, patch(`{"metadata":{"annotations":null}}`))

	t.Log("what would keep it from being deleted")
	require.ErrorContains(t, patch(`{"metadata":{"finalizers":["x.io/y"]}}`), "may not change the finalizers and owners of east")
	require.ErrorContains(t, patch(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}}`), "may not change the finalizers and owners of east")
	require.NoError(t, d.Admin.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["x.io/y"]}}`))))
	require.NoError(t, patch(`{"metadata":{"annotations":{"a":"b"}}}`), "what an administrator put there stays")
	require.ErrorContains(t, patch(`{"metadata":{"finalizers":null}}`), "may not change")
	require.NoError(t, d.Admin.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))

	t.Log("a list of fields for every manager")
	var err error
	for i := range 20 {
		o := cluster(d.NS, "east")
		if err = kube.Apply(t.Context(), east, fmt.Sprint("manager-", i), o); err != nil {
			break
		}
	}
	require.ErrorContains(t, err, "the fields of east have more than 8 managers")
}

// A quota bounds how many objects all members have together.
func TestQuota(t *testing.T) {
	d := deploy(t, kubetest.Shared(t))
	east := d.Join(t, "east", "uid-east")
	require.NoError(t, east.Create(t.Context(), shared(d.NS, "east", "at-once")), "a new quota is counted")
	q := &corev1.ResourceQuota{}
	require.NoError(t, d.Admin.Get(t.Context(), client.ObjectKey{Namespace: d.NS, Name: "submariner-k8s-broker"}, q))
	q.Spec.Hard["count/endpoints.submariner.io"] = resource.MustParse("3")
	require.NoError(t, d.Admin.Update(t.Context(), q))
	require.Eventually(t, func() bool {
		err := d.Admin.Get(t.Context(), client.ObjectKeyFromObject(q), q)
		now := q.Status.Hard["count/endpoints.submariner.io"]
		return err == nil && now.Value() == 3
	}, patience, tick)
	for i := range 3 {
		require.NoError(t, east.Create(t.Context(), endpoint(d.NS, "east", fmt.Sprint(i))))
	}
	err := east.Create(t.Context(), endpoint(d.NS, "east", "3"))
	require.ErrorContains(t, err, "exceeded quota: submariner-k8s-broker, requested: count/endpoints.submariner.io=1, used: count/endpoints.submariner.io=3")
	require.NoError(t, east.Create(t.Context(), cluster(d.NS, "east")), "quotas are of a kind")
	first := endpoint(d.NS, "east", "0")
	require.NoError(t, east.Patch(t.Context(), first, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"hostname":"other"}}`))), "what there is can be changed")
}
