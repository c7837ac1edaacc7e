package broker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/internal/kube"
)

// fakeClient returns a client of an API server with objects, and without controllers.
func fakeClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

// namespaceOf returns a namespace with the label of a clusterset; without a label if set is empty.
func namespaceOf(name, set string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if set != "" {
		ns.Labels = map[string]string{submarinerv1.ClusterSetLabel: set}
	}
	return ns
}

// A clusterset that a cluster has just joined is not deleted.
func TestDeleteSetWithMembers(t *testing.T) {
	member := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "base-a",
			Name:      broker.MemberName("east") + "-" + broker.MemberRoleName,
		},
		RoleRef: rbacv1.RoleRef{Name: broker.MemberRoleName},
	}
	c := fakeClient(t, namespaceOf("base", "default"), namespaceOf("base-a", "a"), member)
	require.EqualError(t, broker.DeleteSet(t.Context(), c, "base", "a"),
		"clusterset a is not deleted, as it has members: east: run the command again")
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "base-a"}, &corev1.Namespace{}))
}

// A namespace is a clusterset if its name and its label agree. Others are left alone, whatever
// label somebody gives them.
func TestNamespacesThatAreNoClusterSets(t *testing.T) {
	c := fakeClient(t, namespaceOf("base", "default"), namespaceOf("base-a", "a"), namespaceOf("base-b", ""),
		namespaceOf("base-c", "a"), namespaceOf("elsewhere", "d"))
	sets, err := broker.SetNames(t.Context(), c, "base")
	require.NoError(t, err)
	require.Equal(t, []string{"default", "a"}, sets)
	b := &v1alpha1.Broker{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.BrokerName, Namespace: "base"}}
	for _, set := range []string{"b", "c"} {
		_, err := broker.NewSets(t.Context(), c, b, []string{set})
		require.EqualError(t, err,
			"clusterset "+set+" needs namespace base-"+set+", which is in use: choose another name")
	}
	for _, set := range []string{"a", "b", "c", "d"} {
		require.NoError(t, broker.DeleteSet(t.Context(), c, "base", set), set)
	}
	left := &corev1.NamespaceList{}
	require.NoError(t, c.List(t.Context(), left))
	var names []string
	for _, ns := range left.Items {
		names = append(names, ns.Name)
	}
	require.Equal(t, []string{"base", "base-b", "base-c", "elsewhere"}, names)
}

// The rights that a cluster had in a clusterset before are still being collected by the broker when
// it is added again. If its controllers do not run, the command ends.
func TestAddWaitsForTheBroker(t *testing.T) {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "base", Name: broker.MemberName("east")}}
	brokertest.Annotate(sa, submarinerv1.GrantAnnotation, brokertest.IdentityIn("east", "default").Grant)
	sa.Annotations[broker.ClusterUIDAnnotation] = brokertest.Grant("east").UID
	earlier := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{
		Namespace: "base-a", Name: sa.Name + "-" + broker.MemberRoleName,
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role", Name: sa.Name, UID: types.UID("earlier")},
		},
	}}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := broker.ChangeSets(t.Context(), fakeClient(t, sa, earlier), "base", []string{"default", "a"},
			broker.SetChange{Cluster: "east", Add: []string{"a"}}, broker.Reservation{}, brokertest.Administrator(),
			time.Now())
		require.EqualError(t, err, "adding cluster east to clusterset a: waiting for the broker to remove "+
			"cluster-east-submariner-k8s-broker-cluster, left by an earlier member: the broker's controllers did "+
			"nothing for 1m0s")
		require.Less(t, time.Since(began), 2*time.Minute)
	})
}
