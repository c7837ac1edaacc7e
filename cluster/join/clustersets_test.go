package join_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/broker"
	"subctl/policy/catalog"
)

// Two clustersets may have clusters with the same addresses, until a cluster joins both.
func TestJoinOfTwoClusterSets(t *testing.T) {
	s := normal()
	s.member("east", "10.112.0.0/16", "10.102.0.0/16", "")
	prod := catalog.Set{Name: "prod", Namespace: "submariner-k8s-broker-prod"}
	s.b.Members = append([]catalog.Set{prod}, s.b.Members...) // member adds to the first one
	s.member("south", "10.112.7.0/24", "10.103.0.0/16", "")
	for _, set := range []string{"default", "prod"} {
		s.ClusterSets = []string{set}
		s.Specified = []string{"clusterset"}
		p, err := s.plan()
		require.NoError(t, err, set)
		require.Equal(t, []string{set}, p.Grant.Sets)
		require.Equal(t, []string{set}, p.Reservation.Sets)
	}
	s.ClusterSets = []string{"prod", "default"}
	const conflict = "clusters east and south both have 10.112.7.0/24, so that cluster west could reach only one of them"
	_, err := s.plan()
	require.EqualError(t, err, conflict+"\nto join these clustersets nevertheless, add --force")
	s.AllowConflicts = true
	p, err := s.plan()
	require.NoError(t, err)
	require.Contains(t, p.Warnings, "the agents do not connect clusters with these conflicts: "+conflict)
	require.Equal(t, []string{"default", "prod"}, p.Grant.Sets)
}

// Who joins again stays in its clustersets, may enter others, and leaves none.
func TestJoinAgainInClusterSets(t *testing.T) {
	s := normal()
	s.f.Submariner = joined("west", "hub:6443")
	s.f.Submariner.Spec.ClusterSets = []string{"prod"}
	s.b.Holder = &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{broker.ClusterUIDAnnotation: "uid-west"}},
	}
	p, err := s.plan()
	require.NoError(t, err)
	require.Equal(t, []string{"prod"}, p.Grant.Sets)
	s.Reset = true
	s.ClusterID = "west"
	p, err = s.plan()
	require.NoError(t, err)
	require.Equal(t, []string{"prod"}, p.Grant.Sets, "a reset takes it out of none either")
	require.Equal(t, []string{"prod"}, p.Submariner.Spec.ClusterSets)
	s.ClusterSets = []string{"default"}
	s.Specified = []string{"clusterset"}
	_, err = s.plan()
	require.ErrorContains(t, err, "this cluster is in clusterset prod")
	s.Reset = false
	_, err = s.plan()
	require.EqualError(t, err,
		"this cluster is in clusterset prod: specify it, too, in --clusterset; only the administrator of the broker removes the cluster from it, with: subctl clusterset remove prod west")

	s.ClusterSets = nil
	s.Specified = nil
	s.f.Submariner.Spec.ClusterSets = []string{"prod", "gone"}
	_, err = s.plan()
	require.EqualError(t, err,
		`clusterset "gone", in which this cluster is, is gone from the broker: there, subctl clusterset create gone brings it back, or subctl clusterset delete gone removes it from the grants of its former members`)
	s.f.Submariner.Spec.ClusterSets = nil
	s.f.Alone = true
	_, err = s.plan()
	require.EqualError(t, err,
		"the administrator of the broker has removed this cluster from all clustersets: specify --clusterset to enter one")

	s = normal()
	s.ClusterSets = []string{"prd"}
	s.Specified = []string{"clusterset"}
	_, err = s.plan()
	require.ErrorContains(t, err,
		`the broker has no clusterset "prd", or the join file does not allow it: there is default, prod; did you mean "prod"?`)
}
