package allocator_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// A written status has the conditions of others as they were.
func TestForeignConditionsStay(t *testing.T) {
	theirs := metav1.Condition{
		Type:               "example.com/Theirs",
		Status:             metav1.ConditionFalse,
		Reason:             "R",
		Message:            "m",
		LastTransitionTime: metav1.Unix(1600000000, 0),
	}
	address := &submarinerv1.GlobalIngressIP{
		ObjectMeta: inShop("mine"),
		Spec: submarinerv1.GlobalIngressIPSpec{
			Target:     submarinerv1.TargetClusterIPService,
			ServiceRef: &corev1.LocalObjectReference{Name: "web"},
		},
	}
	export := shopExport("web")
	c := newGlobalCluster(t, address, export, shopService("web", corev1.ServiceSpec{ClusterIP: "10.96.0.9"}))
	find := func() (*submarinerv1.GlobalIngressIP, *mcsv1alpha1.ServiceExport) {
		s := role.NewSnapshot("node", c.objects...)
		return role.Find[*submarinerv1.GlobalIngressIP](s, "mine"), role.Find[*mcsv1alpha1.ServiceExport](s, "web")
	}
	for _, allocated := range []bool{false, true} {
		if allocated { // they come later
			c.settle()
		}
		address, export := find()
		address.Status.Conditions = append(address.Status.Conditions, theirs)
		export.Status.Conditions = append(export.Status.Conditions, theirs)
		c.settle()
		address, export = find()
		require.Equal(t, theirs, *meta.FindStatusCondition(address.Status.Conditions, theirs.Type))
		require.Equal(t, theirs, *meta.FindStatusCondition(export.Status.Conditions, theirs.Type))
		require.True(t, meta.IsStatusConditionTrue(address.Status.Conditions, submarinerv1.ConditionAllocated))
		require.True(t, meta.IsStatusConditionTrue(export.Status.Conditions, "Ready"))
		meta.RemoveStatusCondition(&address.Status.Conditions, theirs.Type)
		meta.RemoveStatusCondition(&export.Status.Conditions, theirs.Type)
	}

	t.Log("an Event about a condition compares it with the object as it was")
	s := role.NewSnapshot("node", c.seen()...)
	address, _ = find()
	require.Equal(t, address.Status, s.Same(address).(*submarinerv1.GlobalIngressIP).Status)
}
