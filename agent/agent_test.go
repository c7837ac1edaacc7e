package agent

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/parts"
	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"
	"subctl/internal/kubetest"
	policies "subctl/policy"
)

// world is an agent on node gw of a scenario, with a fake API server, a fake kernel, and
// a part that knows what the test says.
type world struct {
	*agent
	*beside
	kernels map[string]*dataplanetest.Fake
}

// beside is a part that adds to snapshots what a test says, and remembers the last plan.
type beside struct {
	tooEarly bool
	standing role.Standing
	health   map[string]role.Health
	partial  bool // the exchange has not read everything
	silent   bool // first cables do not answer

	plan role.Plan
	idle bool // since the last plan
}

// active is the standing of a gateway that is the only active one.
func active(node string) role.Standing {
	return role.Standing{Active: true, Speaker: true, Gateways: []string{node}}
}

func (b *beside) Start(context.Context) error { return nil }

func (b *beside) Observe(s *role.Snapshot) error {
	if b.tooEarly {
		return parts.ErrTooEarly
	}
	s.Standing, s.Health, s.PublicIP = b.standing, b.health, members.PublishedIP(*s)
	if !b.partial {
		s.PoliciesDigest = s.Book.Digest()
	}
	if m, err := mesh.Of(*s); err == nil && !b.silent {
		s.Health = maps.Clone(b.health)
		for _, c := range m.Cables.Wanted {
			if _, used := s.Memory.Using[c.Name]; !used {
				s.Health[c.Name+" over "+c.Device()] = role.Health{Status: submarinerv1.Connected}
			}
		}
	}
	return nil
}

func (b *beside) Act(_ role.Snapshot, p role.Plan, out *role.Outcome) {
	b.plan = p
	b.idle = false
	out.Health = map[string]role.Health{}
	for name := range p.Probes.Targets {
		if h, answered := b.health[name]; answered {
			out.Health[name] = h
		}
	}
}

func (b *beside) Idle(role.Snapshot) { b.idle = true }

func newWorld(t *testing.T, agentRole role.Role, scenario string) *world {
	t.Helper()
	w := &world{kernels: map[string]*dataplanetest.Fake{}, beside: &beside{health: map[string]role.Health{}}}
	w.agent = &agent{
		scope:  scopeOf(agentRole),
		Role:   agentRole,
		Node:   "gw",
		Log:    slog.New(slog.DiscardHandler),
		meters: newMeters(agentRole.Name, prometheus.NewRegistry()),
		Client: fake.NewClientBuilder().WithScheme(
			kubetest.Scheme(t)).WithStatusSubresource(&v1alpha1.CablePolicies{}, &v1alpha1.Submariner{}).
			WithObjects(
				kubetest.Scenario(t, filepath.Join("../testdata/scenarios", scenario+".txtar"))...).Build(),
		Kernel: Kernel{
			Facts: func() (dataplane.Facts, error) {
				return dataplane.Facts{
					Device:    "eth0",
					MTU:       1500,
					PrivateIP: netip.MustParseAddr("10.89.1.11"),
					OwnAddrs:  []netip.Addr{netip.MustParseAddr("10.111.1.1")},
				}, nil
			},
			Target: func(o dataplane.Owner) (dataplane.Target, error) {
				if w.kernels[o.Name] == nil {
					w.kernels[o.Name] = &dataplanetest.Fake{}
				}
				return w.kernels[o.Name], nil
			},
		},
		pace:   rate.NewLimiter(rate.Inf, 0),
		events: &recorder{},
		parts:  []manager.Runnable{w.beside},
	}
	w.reports = w.Client
	if agentRole.Name == roles.Gateway().Name {
		w.standing = active("gw")
	}
	return w
}

func workerFacts() (dataplane.Facts, error) {
	return dataplane.Facts{
		Device:    "eth0",
		MTU:       1500,
		PrivateIP: netip.MustParseAddr("10.89.1.12"),
		OwnAddrs:  []netip.Addr{netip.MustParseAddr("10.111.2.1")},
	}, nil
}

func (w *world) run(t *testing.T) {
	t.Helper()
	_, err := w.Reconcile(t.Context(), everything)
	require.NoError(t, err)
}

func (w *world) holds(t *testing.T, o dataplane.Owner) string {
	t.Helper()
	if w.kernels[o.Name] == nil {
		return ""
	}
	s, err := w.kernels[o.Name].Observe(t.Context())
	require.NoError(t, err)
	return s.String()
}

func get[T client.Object](t *testing.T, w *world, o T, name string) T {
	t.Helper()
	require.NoError(t,
		w.Client.Get(t.Context(), client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: name}, o))
	return o
}

func TestActiveGatewayPublishesAndConnects(t *testing.T) {
	w := newWorld(t, roles.Gateway(), "two-clusters")
	w.run(t)
	require.Contains(t, w.holds(t, dataplane.GatewayOwner), "ip route replace 10.112.0.0/16 table 170171100")
	require.NoError(t, w.Ready(nil))

	e := get(t, w, &submarinerv1.Endpoint{}, "east-submariner-cable-east-10-89-1-11")
	require.Equal(t, []string{"10.101.0.0/16", "10.111.0.0/16"}, e.Spec.Subnets, "Services first")
	require.Equal(t, "10.111.1.1", e.Spec.HealthCheckIP)
	require.Contains(t, e.Spec.BackendConfig[submarinerv1.BackendDrivers], "vxlan")
	c := get(t, w, &submarinerv1.Cluster{}, "east")
	require.Equal(t, []string{"10.111.0.0/16"}, c.Spec.ClusterCIDR)

	g := get(t, w, &submarinerv1.Gateway{}, "gw")
	require.Equal(t, submarinerv1.HAStatusActive, g.Status.HAStatus)
	require.Len(t, g.Status.Connections, 1)
	require.Equal(t, submarinerv1.Connecting, g.Status.Connections[0].Status, "no ping was answered yet")

	h := role.Health{Status: submarinerv1.Connected}
	h.RTT.Add(time.Millisecond)
	w.health["submariner-cable-west-10-89-2-11"] = h
	w.run(t)
	g = get(t, w, &submarinerv1.Gateway{}, "gw")
	require.Equal(t, submarinerv1.Connected, g.Status.Connections[0].Status)
	require.NotNil(t, g.Status.Connections[0].LatencyRTT)
}

// A gateway that was restarted adopts what it finds until it knows whether it is
// still the active one.
func TestGatewayWaitsForTheElection(t *testing.T) {
	w := newWorld(t, roles.Gateway(), "two-clusters")
	w.run(t)
	before := w.holds(t, dataplane.GatewayOwner)
	require.False(t, w.idle)
	w.tooEarly = true
	require.NoError(t, w.Client.Delete(t.Context(), get(t, w, &v1alpha1.Submariner{}, v1alpha1.SubmarinerName)))
	w.run(t)
	require.True(t, w.idle, "its parts learn of it")
	require.Equal(t, before, w.holds(t, dataplane.GatewayOwner))
}

func TestGatewayLosesTheElection(t *testing.T) {
	w := newWorld(t, roles.Gateway(), "two-clusters")
	w.run(t)
	w.standing = role.Standing{}
	w.run(t)
	require.Empty(t, w.holds(t, dataplane.GatewayOwner))
	require.Equal(t, submarinerv1.HAStatusPassive, get(t, w, &submarinerv1.Gateway{}, "gw").Status.HAStatus)
	get(t, w, &submarinerv1.Endpoint{}, "east-submariner-cable-east-10-89-1-11") // the winner removes it
}

func TestNewActiveGatewayReplacesTheOld(t *testing.T) {
	w := newWorld(t, roles.Gateway(), "two-clusters")
	w.Node = "worker"
	w.Kernel.Facts = workerFacts
	w.standing = active("worker")
	w.run(t)
	var list submarinerv1.EndpointList
	require.NoError(t, w.Client.List(t.Context(), &list))
	var names []string
	for _, e := range list.Items {
		names = append(names, e.Name)
	}
	require.ElementsMatch(t, []string{"east-submariner-cable-east-10-89-1-12", "west-submariner-cable-west-10-89-2-11"},
		names)
}

func TestUninstallCleansAndSaysSo(t *testing.T) {
	for _, role := range roles.OfNodes() {
		w := newWorld(t, role, "two-clusters")
		w.run(t)
		require.NotEmpty(t, w.holds(t, role.Owner))
		sub := get(t, w, &v1alpha1.Submariner{}, v1alpha1.SubmarinerName)
		sub.Finalizers = []string{v1alpha1.UninstallFinalizer}
		require.NoError(t, w.Client.Update(t.Context(), sub))
		require.NoError(t, w.Client.Delete(t.Context(), sub))
		w.run(t)
		require.Empty(t, w.holds(t, role.Owner))
		conds := get(t, w, &submarinerv1.RouteAgent{}, "gw").Status.Conditions
		if role.Name == "gateway" {
			conds = get(t, w, &submarinerv1.Gateway{}, "gw").Status.Conditions
			err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: "east"},
				&submarinerv1.Cluster{})
			require.Error(t, err, "the cluster is no member any more")
		}
		require.True(t, meta.IsStatusConditionTrue(conds, submarinerv1.ConditionClean))
	}
}

func TestRouteAgentSweepsAfterAGateway(t *testing.T) {
	w := newWorld(t, roles.Gateway(), "two-clusters")
	w.run(t)
	require.NotEmpty(t, w.holds(t, dataplane.GatewayOwner))
	w.Role = roles.Route()
	w.memory = nil
	w.run(t)
	require.NotEmpty(t, w.holds(t, dataplane.GatewayOwner), "gw is a gateway node")
	w.Node = "worker" // the same kernel, of a node without the label
	w.Kernel.Facts = workerFacts
	w.run(t)
	require.Empty(t, w.holds(t, dataplane.GatewayOwner))
}

func TestMistakeOfOursLeavesTheNodeAlone(t *testing.T) {
	w := newWorld(t, roles.Gateway(), "two-clusters")
	w.run(t)
	before := w.holds(t, dataplane.GatewayOwner)
	reported := get(t, w, &submarinerv1.Gateway{}, "gw").Status
	require.NotEmpty(t, reported.Connections)
	sub := get(t, w, &v1alpha1.Submariner{}, v1alpha1.SubmarinerName)
	sub.Spec.ClusterCIDR = "10.111.0.0"
	require.NoError(t, w.Client.Update(t.Context(), sub))
	for range 2 {
		r, err := w.Reconcile(t.Context(), everything)
		require.NoError(t, err, "a mistake is not retried like a fault")
		require.Equal(t, w.Role.Resync, r.RequeueAfter)
	}
	require.Equal(t, before, w.holds(t, dataplane.GatewayOwner))
	now := get(t, w, &submarinerv1.Gateway{}, "gw").Status
	require.Contains(t, now.StatusFailure, `Submariner.spec.clusterCIDR: "10.111.0.0" is not a network`)
	require.Equal(t, reported.LocalEndpoint, now.LocalEndpoint)
	require.Equal(t, reported.Connections, now.Connections, "the kernel holds the previous plan")
	require.Error(t, w.Ready(nil))

	require.NoError(t, w.Client.Delete(t.Context(), get(t, w, &submarinerv1.Gateway{}, "gw")))
	w.run(t)
	require.Equal(t, "east", get(t, w, &submarinerv1.Gateway{}, "gw").Status.LocalEndpoint.ClusterID,
		"an empty one would be refused by the API server")
}

func TestRefusedEndpointIsReported(t *testing.T) {
	w := newWorld(t, roles.Gateway(), "hostile-endpoints")
	w.run(t)
	g := get(t, w, &submarinerv1.Gateway{}, "gw")
	byStatus := map[submarinerv1.ConnectionStatus]int{}
	for _, c := range g.Status.Connections {
		byStatus[c.Status]++
	}
	var all submarinerv1.EndpointList
	require.NoError(t, w.Client.List(t.Context(), &all))
	hostile := len(all.Items) - 2 // but for west's and our own
	require.Equal(t,
		map[submarinerv1.ConnectionStatus]int{submarinerv1.Connecting: 1, submarinerv1.ConnectionError: hostile},
		byStatus)
	require.True(t, meta.IsStatusConditionTrue(g.Status.Conditions, role.ConditionRefused))
}

func TestFailingKernelIsReportedAndRetried(t *testing.T) {
	w := newWorld(t, roles.Route(), "two-clusters")
	broken := true
	real := w.Kernel.Target
	w.Kernel.Target = func(o dataplane.Owner) (dataplane.Target, error) {
		if broken {
			return nil, errors.New("out of memory")
		}
		return real(o)
	}
	_, err := w.Reconcile(context.Background(), everything)
	require.ErrorContains(t, err, "out of memory")
	require.Contains(t, get(t, w, &submarinerv1.RouteAgent{}, "gw").Status.StatusFailure, "out of memory")
	broken = false
	w.run(t)
	require.Empty(t, get(t, w, &submarinerv1.RouteAgent{}, "gw").Status.StatusFailure)
}

// However often something changes, the loop runs five times a second at most; the first
// changes are not held up.
func TestPace(t *testing.T) {
	w := newWorld(t, roles.Route(), "two-clusters")
	w.Kernel.Facts = workerFacts
	w.pace = newPace()
	for range loopBurst {
		r, err := w.Reconcile(t.Context(), everything)
		require.NoError(t, err)
		require.Equal(t, w.Role.Resync, r.RequeueAfter)
	}
	w.pace.SetLimitAt(time.Now(), 0) // time stands still
	w.pace.SetBurst(0)
	loops := w.done.Load()
	r, err := w.Reconcile(t.Context(), everything)
	require.NoError(t, err)
	require.Equal(t, loopPause, r.RequeueAfter)
	require.Equal(t, loops, w.done.Load())
}

func TestBooks(t *testing.T) {
	policy := func(name, uid, version string) *v1alpha1.CablePolicies {
		return &v1alpha1.CablePolicies{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version},
		}
	}
	makers := policies.Makers{Here: "west"}
	var b books
	none := b.of(nil, makers)
	require.Same(t, none, b.of(nil, makers))
	one := b.of([]*v1alpha1.CablePolicies{policy("a", "1", "7")}, makers)
	require.NotSame(t, none, one)
	require.Same(t, one, b.of([]*v1alpha1.CablePolicies{policy("a", "1", "7")}, makers))
	for _, changed := range []*v1alpha1.CablePolicies{
		policy("b", "1", "7"),
		policy("a", "2", "7"),
		policy("a", "1", "8"),
	} {
		require.NotSame(t, b.of([]*v1alpha1.CablePolicies{policy("a", "1", "7")}, makers),
			b.of([]*v1alpha1.CablePolicies{changed}, makers))
	}
}
