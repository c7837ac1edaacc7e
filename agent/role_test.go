package agent

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh"
	"subctl/agent/role"
	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
)

var toyNetwork = netip.MustParsePrefix("10.77.0.0/16")

// toy is a role as CONTRIBUTING.md describes it: a function like this one in a file of
// package mesh, and a line in roles.All. While it is active it drops packets to
// a network, and notes so on the Node. It plans from the cluster's mesh, and remembers nothing.
func toy() role.Role {
	return role.Role{
		Name: "toy", Owner: dataplane.RouteOwner, MetricsPort: 32799, Resync: time.Minute,
		Watches: []role.Object{&corev1.Node{}, &v1alpha1.Submariner{}},
		Parts:   []role.Part{role.Election},
		Plan: func(s role.Snapshot) (role.Plan, error) {
			if !s.Standing.Active {
				return role.Plan{State: dataplane.State{}}, nil
			}
			m, err := mesh.Of(s)
			if err != nil {
				return role.Plan{}, err
			}
			state, err := dataplane.Of(dataplane.Blackhole{Table: dataplane.IntraTable, Dst: toyNetwork})
			return role.Plan{State: state, Decisions: &mesh.Plan{Mesh: m}}, err
		},
		Report: func(s role.Snapshot, p role.Plan, o role.Outcome) role.Report {
			n := role.Find[*corev1.Node](s, s.Node).DeepCopy()
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, "toy", p.State.String())
			return role.Report{Update: []role.Object{n}}
		},
	}
}

// The loop runs a role that it does not know: it plans, syncs, reports, and cleans up
// when the role's duties end.
func TestToyRole(t *testing.T) {
	w := newWorld(t, toy(), "two-clusters")
	w.standing = active("gw")
	w.run(t)
	want := "ip route replace blackhole 10.77.0.0/16 table 170171150"
	require.Contains(t, w.holds(t, dataplane.RouteOwner), want)
	var n corev1.Node
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKey{Name: "gw"}, &n))
	require.Contains(t, n.Annotations["toy"], want)

	w.standing = role.Standing{}
	w.run(t)
	require.Empty(t, w.holds(t, dataplane.RouteOwner))
}
