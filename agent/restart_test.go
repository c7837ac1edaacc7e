package agent

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable/vxlan"
	"subctl/dataplane"
)

const (
	westCable = "submariner-cable-west-10-89-2-11"
	overVXLAN = "table 170171100 nhid 535382446 src 10.111.1.1 mtu 1450"
)

// gateway is the gateway agent of two-clusters.
func gateway(t *testing.T) *world {
	t.Helper()
	return newWorld(t, roles.Gateway(), "two-clusters")
}

// restarted is another agent on the same node of the same cluster.
func (w *world) restarted(t *testing.T) *world {
	t.Helper()
	next := newWorld(t, w.Role, "alone")
	next.Client = w.Client
	next.reports = w.Client
	next.kernels = w.kernels
	next.events = w.events
	return next
}

// policy writes a policy of another cluster, with its settings of the driver.
func (w *world) policy(t *testing.T, driver, settings string) {
	t.Helper()
	p := &v1alpha1.CablePolicies{
		ObjectMeta: metav1.ObjectMeta{
			// as no other has
			Name: "lab", Namespace: submarinerv1.OperatorNamespace, UID: types.UID(driver + settings),
			Labels: map[string]string{
				submarinerv1.ClusterIDLabel:  "west",
				submarinerv1.ClusterSetLabel: submarinerv1.DefaultClusterSet,
			},
		},
		ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: driver}},
	}
	if settings != "" {
		p.ConnectionPolicies[0].CableOptions = &v1alpha1.CableOptions{
			Data: map[string]string{v1alpha1.CableCustomConfig: settings},
		}
	}
	require.NoError(t, client.IgnoreNotFound(w.Client.Delete(t.Context(), p.DeepCopy())))
	require.NoError(t, w.Client.Create(t.Context(), p))
}

// answers makes a probe be answered, as if the other end of the cable were there.
func (w *world) answers(t *testing.T, probe string) {
	t.Helper()
	require.Contains(t, w.plan.Probes.Targets, probe)
	w.health[probe] = role.Health{Status: submarinerv1.Connected}
}

func (w *world) connection(t *testing.T) submarinerv1.Connection {
	t.Helper()
	g := get(t, w, &submarinerv1.Gateway{}, "gw")
	require.Len(t, g.Status.Connections, 1)
	return g.Status.Connections[0]
}

// carrier is the device that carries the traffic to cluster west.
func (w *world) carrier(t *testing.T) string {
	t.Helper()
	return w.memory.Using[westCable].Device
}

// An agent that starts in the middle of a change goes on with it: traffic stays with
// the old cable, whose settings came from a policy, until the new one answers.
func TestRestartDuringAChange(t *testing.T) {
	w := gateway(t)
	w.policy(t, vxlan.Name, "vxlanID: 2000")
	w.run(t)
	require.Equal(t, "subvx-2000", w.carrier(t))
	w.policy(t, vxlan.Name, "vxlanID: 3000")
	w.run(t)
	require.Equal(t, "subvx-2000", w.carrier(t))
	require.Equal(t, submarinerv1.Connecting, w.connection(t).Status)
	routes := w.holds(t, dataplane.GatewayOwner)

	w = w.restarted(t)
	w.run(t)
	require.Equal(t, "subvx-2000", w.carrier(t), "nobody has seen the new cable work")
	require.Equal(t, routes, w.holds(t, dataplane.GatewayOwner))

	w.answers(t, westCable+" over subvx-3000")
	w.run(t)
	require.Equal(t, "subvx-3000", w.carrier(t))
	require.Equal(t, "subvx-2000", w.connection(t).Before.Device)

	w = w.restarted(t)
	w.run(t)
	require.Equal(t, "subvx-3000", w.carrier(t))
	require.Contains(t, w.holds(t, dataplane.GatewayOwner), "dev subvx-2000",
		"the other side may still send through it")
	u := w.memory.Using[westCable]
	u.Since = u.Since.Add(-time.Minute)
	w.memory.Using[westCable] = u
	w.run(t)
	require.NotContains(t, w.holds(t, dataplane.GatewayOwner), "dev subvx-2000")
	require.Nil(t, w.connection(t).Before)
}

// unanswered is an API server that does not answer.
type unanswered struct{ client.Reader }

func (unanswered) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return context.DeadlineExceeded
}

// bounded is an API server that nobody may wait for without limit.
type bounded struct {
	t *testing.T
	client.Reader
}

func (b bounded) List(ctx context.Context, l client.ObjectList, o ...client.ListOption) error {
	_, limited := ctx.Deadline()
	require.True(b.t, limited)
	return b.Reader.List(ctx, l, o...)
}

// An agent that goes on while its node is no gateway node begins anew when the node gets the label
// back: the route agent has removed the cables, and the other clusters may have, too. The memory of
// an agent that only waits for the election stays.
func TestLabelReturns(t *testing.T) {
	for _, labelled := range []bool{false, true} {
		w := gateway(t)
		label := func(labels map[string]string) {
			n := &corev1.Node{}
			require.NoError(t, w.Client.Get(t.Context(), client.ObjectKey{Name: "gw"}, n))
			n.Labels = labels
			require.NoError(t, w.Client.Update(t.Context(), n))
		}
		w.run(t)
		require.Equal(t, dataplane.VXLANDevice, w.carrier(t))
		require.False(t, w.connection(t).Idle)

		w.tooEarly = true
		w.reports = unanswered{}
		if !labelled {
			label(nil)
		}
		for range 3 { // reads no reports meanwhile
			w.run(t)
		}
		w.reports = bounded{t, w.Client}
		_, err := dataplane.Sync(t.Context(), w.kernels[dataplane.GatewayOwner.Name], dataplane.State{})
		require.NoError(t, err)

		label(map[string]string{submarinerv1.GatewayNodeLabel: "true"})
		w.tooEarly = false
		w.silent = true
		w.run(t)
		require.Equal(t, !labelled, w.connection(t).Idle, "it carries nothing until it answers")
		require.Contains(t, w.holds(t, dataplane.GatewayOwner), "dev "+dataplane.VXLANDevice)
	}
}

// An agent that ends after its node has booted, and before it has reported, leaves the report of
// before the boot. The next agent sends nothing through the cables in it until they answer,
// although the node holds cables. Nor does it if a mistake kept the report as it was. An agent of
// an older version reports no boot.
func TestRestartBeforeTheFirstReport(t *testing.T) {
	for name, test := range map[string]struct {
		reported, now string
		mistake, idle bool
	}{
		"the same boot":              {"one", "one", false, false},
		"another boot":               {"one", "two", false, true},
		"after a mistake":            {"one", "two", true, true},
		"an older version":           {"", "two", false, false},
		"an older version's mistake": {"", "two", true, false},
		"not known now":              {"one", "", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := gateway(t)
			booted := func(id string) {
				facts := w.Kernel.Facts
				w.Kernel.Facts = func() (dataplane.Facts, error) {
					f, err := facts()
					f.BootID = id
					return f, err
				}
			}
			booted(test.reported)
			w.run(t)
			require.False(t, w.connection(t).Idle)
			if test.mistake {
				sub := get(t, w, &v1alpha1.Submariner{}, v1alpha1.SubmarinerName)
				right := sub.Spec.ServiceCIDR
				for _, cidr := range []string{"", right} {
					sub.Spec.ServiceCIDR = cidr
					require.NoError(t, w.Client.Update(t.Context(), sub))
					if cidr == "" {
						w = w.restarted(t)
						booted(test.now)
						w.run(t)
					}
				}
			}
			w = w.restarted(t)
			booted(test.now)
			w.silent = true
			w.run(t)
			require.Equal(t, test.idle, w.connection(t).Idle)
			require.Equal(t, test.now, get(t, w, &submarinerv1.Gateway{}, "gw").Status.BootID)
		})
	}
}

// A mistake in which drivers a cluster offers changes nothing of its cables, also for
// an agent that starts with it, and is said.
func TestBadDriversInTheSubmariner(t *testing.T) {
	const list = "use one of vxlan, wireguard, vxlan+wireguard, ipsec, vxlan+ipsec"
	for _, test := range []struct {
		name   string
		change func(*v1alpha1.SubmarinerSpec)
		why    string
	}{
		{
			"unknown default",
			func(s *v1alpha1.SubmarinerSpec) { s.CableDriver = "carrier-pigeon" },
			`Submariner.spec.cableDriver: unknown cable driver "carrier-pigeon": ` + list,
		},
		{
			"unknown driver",
			func(s *v1alpha1.SubmarinerSpec) { s.CableDrivers = []string{"wireguard", "gre"} },
			`Submariner.spec.cableDrivers: unknown cable driver "gre": ` + list,
		},
		{
			"one driver combined", func(s *v1alpha1.SubmarinerSpec) { s.CombinedCableDrivers = []string{"vxlan"} },
			"Submariner.spec.combinedCableDrivers vxlan is one driver, and a combined cable is one inside another: choose vxlan,wireguard or vxlan,ipsec",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := gateway(t)
			events := &recorder{}
			w.events = events
			w.run(t)
			before := w.holds(t, dataplane.GatewayOwner)
			require.Contains(t, before, overVXLAN)
			endpoint := get(t, w, &submarinerv1.Endpoint{}, "east-submariner-cable-east-10-89-1-11").Spec

			sub := get(t, w, &v1alpha1.Submariner{}, v1alpha1.SubmarinerName)
			test.change(&sub.Spec)
			require.NoError(t, w.Client.Update(t.Context(), sub))
			for range 2 {
				w.run(t)
				require.Equal(t, before, w.holds(t, dataplane.GatewayOwner))
				c := w.configCondition(t)
				require.Equal(t, metav1.ConditionFalse, c.Status)
				require.Equal(t, "the settings before stay in force: "+test.why, c.Message)
				require.Equal(t, endpoint,
					get(t, w, &submarinerv1.Endpoint{}, "east-submariner-cable-east-10-89-1-11").Spec,
					"what others are told stays")
				require.Equal(t, []recorded{{"gw", "Warning BadCableConfig", c.Message}}, events.got)
				w = w.restarted(t)
			}

			worker := newWorld(t, roles.Route(), "alone")
			worker.Client = w.Client
			worker.reports = w.Client
			worker.run(t)
			require.Contains(t, worker.holds(t, dataplane.RouteOwner), "vx-submariner")
		})
	}
}

// dropsWest is what a gateway holds that has no cable to cluster west.
const dropsWest = `ip route replace blackhole 10.102.0.0/16 table 170171100 metric 1073741824
ip route replace blackhole 10.112.0.0/16 table 170171100 metric 1073741824
ip rule add pref 100 lookup 170171100 suppress_prefixlength 0
`

// Who never had a choice that can be understood offers nothing, rather than something
// that the user may not want.
func TestBadDriversFromTheStart(t *testing.T) {
	w := newWorld(t, roles.Gateway(), "two-clusters")
	require.NoError(t,
		w.Client.Delete(t.Context(), get(t, w, &submarinerv1.Endpoint{}, "east-submariner-cable-east-10-89-1-11")))
	sub := get(t, w, &v1alpha1.Submariner{}, v1alpha1.SubmarinerName)
	sub.Spec.CableDrivers = []string{"wiregard"}
	require.NoError(t, w.Client.Update(t.Context(), sub))
	for range 2 {
		w.run(t)
		require.Equal(t, dropsWest, w.holds(t, dataplane.GatewayOwner))
		require.Contains(t, w.connection(t).StatusMessage,
			`cluster east does not offer vxlan: Submariner.spec.cableDrivers: unknown cable driver "wiregard": did you mean wireguard?`)
	}
}

// A mistake in the policy that decides does not take the cable that a pair has, nor
// change it, whatever starts anew; a pair without one does not get any.
func TestMistakesInPoliciesKeepTheCable(t *testing.T) {
	const unknown = `cable policy lab: unknown cable driver "gre": use one of vxlan, wireguard, vxlan+wireguard, ipsec, vxlan+ipsec`
	for _, test := range []struct{ name, driver, settings, why string }{
		{"unknown driver", "gre", "", unknown},
		{
			"settings that cannot be read",
			"vxlan",
			"vxlanID: none",
			`cable policy lab, settings of vxlan: line 1: vxlanID "none": it must be a whole number from 1 to 16777215`,
		},
		{
			"settings of another driver",
			"wireguard",
			"vxlanID: 5",
			"cable policy lab, settings of wireguard: line 1: vxlanID: wireguard has no such setting, but vxlan has it: use one of keepalive, mtu, wireguardPort",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := gateway(t)
			worker := newWorld(t, roles.Route(), "alone")
			w.policy(t, vxlan.Name, "{vxlanID: 2000, mtu: 1300}")
			w.run(t)
			worker.Client = w.Client
			worker.reports = w.Client
			worker.Node = "worker"
			worker.Kernel.Facts = workerFacts
			worker.run(t)
			cables := w.holds(t, dataplane.GatewayOwner)
			routes := worker.holds(t, dataplane.RouteOwner)
			require.Contains(t, cables, "dev subvx-2000")
			require.Contains(t, routes, "10.112.0.0/16 table 170171150 nhid 788529152 src 10.111.2.1 mtu 1300")
			events := &recorder{}
			w.events = events

			w.policy(t, test.driver, test.settings)
			for range 2 {
				w.run(t)
				require.Equal(t, cables, w.holds(t, dataplane.GatewayOwner))
				why := "the cable to cluster west stays vxlan: " + test.why
				c := w.connection(t)
				require.Equal(t, "subvx-2000", c.Device)
				c0 := meta.FindStatusCondition(get(t, w, &submarinerv1.Gateway{}, "gw").Status.Conditions,
					role.ConditionCablePoliciesValid)
				require.Equal(t, why, c0.Message)
				require.Equal(t, []recorded{{"gw", "Warning CableKept", why}}, events.got)
				worker.run(t)
				require.Equal(t, routes, worker.holds(t, dataplane.RouteOwner))
				w = w.restarted(t)
				worker = worker.restarted(t)
				worker.Node = "worker"
				worker.Kernel.Facts = workerFacts
			}

			next := newWorld(t, roles.Gateway(), "alone") // another gateway of the cluster takes over
			next.Client = w.Client
			next.reports = w.Client
			next.Node = "worker"
			next.Kernel.Facts = workerFacts
			next.standing = active("worker")
			next.run(t)
			require.Equal(t, "subvx-2000", next.carrier(t))

			w.policy(t, vxlan.Name, "")
			w.run(t)
			require.Nil(
				t,
				meta.FindStatusCondition(get(t, w, &submarinerv1.Gateway{}, "gw").Status.Conditions,
					role.ConditionCablePoliciesValid),
			)

			fresh := gateway(t)
			fresh.policy(t, test.driver, test.settings)
			fresh.run(t)
			require.Equal(t, dropsWest, fresh.holds(t, dataplane.GatewayOwner))
			c := fresh.connection(t)
			require.Equal(t, "refused: "+test.why, c.StatusMessage)
			require.Equal(t, "lab", c.Policy)
		})
	}
}

// What somebody wants gone goes, mistakes in policies or not.
func TestWhatIsNotOfferedIsNotKept(t *testing.T) {
	w := gateway(t)
	w.run(t)
	w.policy(t, "gre", "")
	sub := get(t, w, &v1alpha1.Submariner{}, v1alpha1.SubmarinerName)
	sub.Spec.CableDrivers = []string{"wireguard"}
	require.NoError(t, w.Client.Update(t.Context(), sub))
	w.run(t)
	require.Equal(t, dropsWest, w.holds(t, dataplane.GatewayOwner))
}

// A gateway whose node has booted while it was to be drained is drained at once, without a report
// from before. If it is put back into service, and drained later, it has flows.
func TestBootsWhileDrained(t *testing.T) {
	w := gateway(t)
	for _, want := range []string{submarinerv1.Drained, "", submarinerv1.Draining} {
		n := &corev1.Node{}
		require.NoError(t, w.Client.Get(t.Context(), client.ObjectKey{Name: "gw"}, n))
		n.Annotations = nil
		if want != "" {
			n.Annotations = map[string]string{submarinerv1.DrainAnnotation: "5m"}
		}
		require.NoError(t, w.Client.Update(t.Context(), n))
		for range 2 {
			w.run(t)
			g := get(t, w, &submarinerv1.Gateway{}, "gw")
			require.Equal(t, want, g.Status.Drain)
			require.NoError(t, w.Client.Delete(t.Context(), g))
		}
	}
}
