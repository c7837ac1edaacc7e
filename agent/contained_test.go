package agent

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable/vxlan"
	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"
)

const (
	northCable  = "submariner-cable-north-10-89-3-11"
	northDevice = "subvx-2000"
	portTaken   = "UDP port 4502 is in use by charon (pid 123)"
)

// withNorth adds a third cluster, whose cable has a device of its own by a policy.
func (w *world) withNorth(t *testing.T) {
	t.Helper()
	labels := map[string]string{submarinerv1.ClusterIDLabel: "north"}
	require.NoError(t, w.Client.Create(t.Context(), &submarinerv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "north",
			Namespace:   submarinerv1.OperatorNamespace,
			Labels:      labels,
			Annotations: map[string]string{submarinerv1.ClusterSetsAnnotation: submarinerv1.DefaultClusterSet},
		},
		Spec: submarinerv1.ClusterSpec{
			ClusterID:   "north",
			ClusterCIDR: []string{"10.113.0.0/16"},
			ServiceCIDR: []string{"10.103.0.0/16"},
		},
	}))
	require.NoError(t, w.Client.Create(t.Context(), &submarinerv1.Endpoint{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "north-" + northCable,
			Namespace: submarinerv1.OperatorNamespace,
			Labels:    labels,
		},
		Spec: submarinerv1.EndpointSpec{
			ClusterID:     "north",
			CableName:     northCable,
			Hostname:      "north-gw",
			Subnets:       []string{"10.103.0.0/16", "10.113.0.0/16"},
			PrivateIP:     "10.89.3.11",
			Backend:       "vxlan",
			HealthCheckIP: "10.113.1.1",
		},
	}))
	w.policy(t, vxlan.Name, "vxlanID: 2000")
	p := get(t, w, &v1alpha1.CablePolicies{}, "lab")
	p.UID = "of north"
	p.ConnectionPolicies[0].LeftClusterSelector = v1alpha1.ClusterSelector{MatchLabels: labels}
	require.NoError(t, w.Client.Update(t.Context(), p))
}

// refuses makes the kernel refuse an object.
func (w *world) refuses(t *testing.T, k dataplane.Key) {
	t.Helper()
	kernel, err := w.Kernel.Target(w.Role.Owner)
	require.NoError(t, err)
	kernel.(*dataplanetest.Fake).Refuse = func(o dataplane.Object) error {
		if o.Key() == k {
			return errors.New(portTaken)
		}
		return nil
	}
}

// to returns the connection to a cluster.
func (w *world) to(t *testing.T, cluster string) submarinerv1.Connection {
	t.Helper()
	cs := get(t, w, &submarinerv1.Gateway{}, "gw").Status.Connections
	i := slices.IndexFunc(cs, func(c submarinerv1.Connection) bool { return c.Endpoint.ClusterID == cluster })
	require.GreaterOrEqual(t, i, 0, cs)
	return cs[i]
}

func (w *world) synced(t *testing.T) *metav1.Condition {
	t.Helper()
	return meta.FindStatusCondition(get(t, w, &submarinerv1.Gateway{}, "gw").Status.Conditions, role.ConditionSynced)
}

// A device that cannot be set up is an error of the pair that uses it. The other pair stays
// connected, its probes go on, the pod is ready, and nothing is retried with back-off.
func TestFailureOfOneCable(t *testing.T) {
	w := gateway(t)
	w.withNorth(t)
	w.refuses(t, dataplane.Key{Kind: dataplane.KindLink, Name: northDevice})
	w.run(t) // returns no error
	w.answers(t, westCable)
	w.run(t)
	require.NoError(t, w.Ready(nil))
	west := w.to(t, "west")
	north := w.to(t, "north")
	require.Equal(t, submarinerv1.Connected, west.Status, west.StatusMessage)
	require.Equal(t, submarinerv1.ConnectionError, north.Status)
	require.Contains(t, north.StatusMessage, portTaken)
	g := get(t, w, &submarinerv1.Gateway{}, "gw")
	require.Empty(t, g.Status.StatusFailure, "the gateway does its work")
	require.Equal(t, metav1.ConditionFalse, w.synced(t).Status)
	require.Equal(t, "CableFailed", w.synced(t).Reason)
	require.Contains(t, w.synced(t).Message, "no cable to north (vxlan): ")
	require.Contains(t, w.synced(t).Message, portTaken)
	require.Contains(t, w.memory.Using, westCable)
	require.NotContains(t, w.memory.Using, northCable, "it carries nothing")

	t.Run("other pairs change", func(t *testing.T) {
		require.NoError(t, w.Client.Delete(t.Context(), get(t, w, &submarinerv1.Endpoint{}, "west-"+westCable)))
		w.run(t)
		require.NotContains(t, w.holds(t, dataplane.GatewayOwner), "10.112.0.0/16 table 170171100 nhid")
		require.Equal(t, submarinerv1.ConnectionError, w.to(t, "north").Status)
	})
	t.Run("the cause is gone", func(t *testing.T) {
		w.refuses(t, dataplane.Key{})
		w.run(t)
		w.answers(t, northCable)
		w.run(t)
		require.Equal(t, submarinerv1.Connected, w.to(t, "north").Status)
		require.Equal(t, metav1.ConditionTrue, w.synced(t).Status)
	})
}

// A cable that a pair is to change to cannot be set up: traffic stays with the old one, which
// is probed, and the connection gives the reason.
func TestFailureOfTheNextCable(t *testing.T) {
	w := gateway(t)
	w.run(t)
	w.answers(t, westCable)
	w.refuses(t, dataplane.Key{Kind: dataplane.KindLink, Name: northDevice})
	w.policy(t, vxlan.Name, "vxlanID: 2000")
	w.run(t)
	c := w.connection(t)
	require.Equal(t,
		"traffic stays with vxlan: changing to vxlan is not possible: adding {link subvx-2000}: "+portTaken,
		c.StatusMessage)
	require.Contains(t, w.holds(t, dataplane.GatewayOwner), overVXLAN)
	require.Equal(t, dataplane.VXLANDevice, w.carrier(t))
	require.NoError(t, w.Ready(nil))
	w.refuses(t, dataplane.Key{})
	w.run(t)
	w.answers(t, westCable+" over "+northDevice)
	w.run(t)
	require.Equal(t, northDevice, w.carrier(t))
}

// What all cables need is not the matter of one of them.
func TestFailureOfTheNode(t *testing.T) {
	w := gateway(t)
	w.withNorth(t)
	w.refuses(t, dataplane.Rule{Priority: dataplane.CablePriority, Table: dataplane.CableTable}.Key())
	_, err := w.Reconcile(t.Context(), everything)
	require.ErrorContains(t, err, portTaken)
	require.Error(t, w.Ready(nil))
	for _, cluster := range []string{"west", "north"} {
		require.Equal(t, submarinerv1.ConnectionError, w.to(t, cluster).Status)
	}
	require.Contains(t, get(t, w, &submarinerv1.Gateway{}, "gw").Status.StatusFailure, portTaken)
	require.Empty(t, w.memory.Using)
}

// An error that only some cables depend on is contained, unless there is another one beside it.
func TestPlanOutcome(t *testing.T) {
	w := gateway(t)
	w.withNorth(t)
	w.run(t)
	key := dataplane.Key{Kind: dataplane.KindLink, Name: northDevice}
	why := &dataplane.Failure{Key: key, Err: errors.New(portTaken)}
	fault := &dataplane.DriftError{
		Failures: []*dataplane.Failure{why},
		Affected: map[dataplane.Key][]*dataplane.Failure{},
	}
	for k, o := range w.plan.State {
		if k == key || slices.Contains(o.Needs(), key) {
			fault.Affected[k] = fault.Failures
		}
	}
	out := mesh.NewOutcome(w.plan, mesh.PlanOf(w.plan).Mesh.Snapshot.Now, nil, fault)
	require.True(t, out.Contained)
	require.Equal(t, map[string]error{northCable: errors.New(portTaken)}, out.Broken)
	out = mesh.NewOutcome(w.plan, mesh.PlanOf(w.plan).Mesh.Snapshot.Now, nil,
		errors.Join(fault, errors.New("another owner's object is left")))
	require.False(t, out.Contained)
	require.Len(t, out.Broken, 1)
	out = mesh.NewOutcome(w.plan, mesh.PlanOf(w.plan).Mesh.Snapshot.Now, nil, errors.New("the kernel cannot be read"))
	require.False(t, out.Contained)
	require.Len(t, out.Broken, 2)
}
