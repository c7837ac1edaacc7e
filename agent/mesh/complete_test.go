package mesh_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/exchange"
	"subctl/cable"
	"subctl/cable/keys"
	"subctl/internal/kubetest"
	"subctl/policy"
)

// arrivals is cluster east, and what arrives there when cluster west has joined with the
// label site=cloud, for which a policy specifies ipsec.
type arrivals struct {
	always                  []client.Object // of the cluster itself, with its Cluster in its first state
	own, cluster, endpoint  client.Object
	policy                  *v1alpha1.CablePolicies
	withPolicy, withoutRead string // annotations of own
}

func newArrivals(t *testing.T) arrivals {
	t.Helper()
	file, err := txtar.ParseFile("../../testdata/scenarios/two-clusters.txtar")
	require.NoError(t, err)
	var a arrivals
	var spec v1alpha1.SubmarinerSpec
	for _, o := range kubetest.Decode(t, file) {
		switch o := o.(type) {
		case *v1alpha1.Submariner:
			spec = o.Spec
		case *submarinerv1.RouteAgent:
			o.Status.Node.IPsec = submarinerv1.EngineFact{Name: "kernel"}
		case *submarinerv1.Cluster:
			if a.own = o; submarinerv1.IsCopy(o) {
				o.Labels["site"] = "cloud"
				o.Spec.PublicKey = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
				a.cluster = o
			}
		case *submarinerv1.Endpoint:
			o.Spec.BackendConfig = map[string]string{submarinerv1.BackendDrivers: "vxlan,ipsec"}
			if submarinerv1.IsCopy(o) {
				a.endpoint = o
				continue
			}
		}
		if _, ok := o.(*submarinerv1.Cluster); !ok {
			a.always = append(a.always, o)
		}
	}
	a.own = &submarinerv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "east",
			Namespace: submarinerv1.OperatorNamespace,
		}, Spec: submarinerv1.ClusterSpec{ClusterID: "east"},
	}
	a.policy = &v1alpha1.CablePolicies{
		ObjectMeta: metav1.ObjectMeta{
			Name: "cloud", Namespace: submarinerv1.OperatorNamespace,
			Labels: map[string]string{submarinerv1.ClusterIDLabel: "north", submarinerv1.ClusterSetLabel: "default"},
		},
		ConnectionPolicies: []v1alpha1.CablePolicySpec{{
			LeftClusterSelector: v1alpha1.ClusterSelector{
				MatchLabels: map[string]string{"site": "cloud"},
			}, CableDriver: "ipsec",
		}},
	}
	a.withPolicy = PoliciesRead(spec, spec.Sets(), policy.Digest([]*v1alpha1.CablePolicies{a.policy}))
	a.withoutRead = PoliciesRead(spec, spec.Sets(), policy.Digest(nil))
	return a
}

// read returns this cluster's Cluster with the annotation about policies; none if empty.
func (a arrivals) read(annotation string) client.Object {
	c := a.own.DeepCopyObject().(client.Object)
	if annotation != "" {
		c.SetAnnotations(map[string]string{submarinerv1.PoliciesAnnotation: annotation})
	}
	return c
}

// plan plans the gateway with what has arrived, after the last plan.
func (a arrivals) plan(t *testing.T, m role.Memory, health map[string]role.Health, objs ...client.Object) Plan {
	t.Helper()
	s, err := FromReports("gw", slices.Concat(a.always, objs)...)
	require.NoError(t, err)
	s.Now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s.Memory = m
	s.Health = health
	p, err := PlanGateway(s)
	require.NoError(t, err)
	route, err := PlanRoute(s)
	require.NoError(t, err)
	require.Equal(t, p.Mesh.Cables.Wanted, route.Mesh.Cables.Wanted, "the nodes of a cluster agree")
	return p
}

// overIPsec is how the probes of the pair are: the other end has the cable of the policy, and no
// other.
var overIPsec = map[string]role.Health{role.ProbeName(westCable, "ipsec-tunnel"): {Status: submarinerv1.Connected}}

// Whatever the order in which objects arrive, also across restarts, and whatever was known
// of the policies before: no cable without encryption carries anything, and packets are
// dropped until the pair has its cable.
func TestNoPlainCableFromPartialState(t *testing.T) {
	a := newArrivals(t)
	waited := map[string]int{}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		steps := []string{"policy", "read", "cluster", "endpoint"}
		r.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		annotation := pickOne(r, "", a.withoutRead, "another-broker/ns default none")
		has := map[string]bool{}
		var m role.Memory
		for _, step := range append(steps, "answer") {
			if has[step] = true; step == "read" {
				annotation = a.withPolicy
			}
			objs := []client.Object{a.read(annotation)}
			for name, o := range map[string]client.Object{
				"policy":   a.policy,
				"cluster":  a.cluster,
				"endpoint": a.endpoint,
			} {
				if has[name] {
					objs = append(objs, o)
				}
			}
			health := map[string]role.Health{}
			if has["answer"] {
				health = overIPsec
			}
			p := a.plan(t, m, health, objs...)
			for _, c := range p.Installed {
				require.True(t, c.Idle || c.Driver.Properties().Encrypts, "seed %d, %v", seed, steps)
			}
			if has["endpoint"] {
				require.Contains(t, p.State.String(), "blackhole 10.112.0.0/16")
			}
			if c := report.Connections(p, role.Outcome{}); has["endpoint"] && c[0].Driver != "ipsec" {
				require.NotContains(t, p.State.String(), "10.112.0.0/16 table 170171100 nhid")
				require.Equal(t, submarinerv1.Connecting, c[0].Status)
				require.Equal(t, c[0].Driver, c[0].Endpoint.Backend, "no driver is reported before it is Decided")
				waited[c[0].StatusMessage]++
			}
			m.Using = p.Using
			if r.IntN(3) == 0 { // a restart
				g := &submarinerv1.Gateway{
					Status: submarinerv1.GatewayStatus{
						HAStatus:    submarinerv1.HAStatusActive,
						Connections: report.Connections(p, role.Outcome{}),
					},
				}
				m.Using = UsingIn(g, time.Time{})
			}
		}
		require.Equal(t, "ipsec", m.Using[westCable].Driver, "seed %d", seed)
	}
	require.Len(t, waited, 4,
		"the Cluster, policies not read, policies that change, a cable that the other end does not have: %v", waited)
}

// A pair that has a cable keeps exactly this cable while state is incomplete, even if no
// policy would choose it.
func TestPartialStateChangesNothing(t *testing.T) {
	a := newArrivals(t)
	key, err := keys.ParsePublic(a.cluster.(*submarinerv1.Cluster).Spec.PublicKey)
	require.NoError(t, err)
	using := map[string]role.Using{
		westCable: {
			Cluster:   "west",
			Driver:    "ipsec",
			Device:    "ipsec-tunnel",
			Policy:    "cloud",
			Rule:      1,
			Config:    cable.Config{},
			PublicKey: key,
		},
	}
	for name, objs := range map[string][]client.Object{
		"complete":                      {a.read(a.withPolicy), a.cluster, a.policy},
		"no Cluster of the other":       {a.read(a.withPolicy), a.policy},
		"no Cluster of its own":         {a.cluster, a.policy},
		"never read":                    {a.read(""), a.cluster},
		"read from another broker":      {a.read("another-broker/ns default none"), a.cluster},
		"a copy of a policy is gone":    {a.read(a.withPolicy), a.cluster},
		"a policy not on the broker":    {a.read(a.withoutRead), a.cluster, a.policy},
		"nothing but the Endpoint":      nil,
		"the Cluster has not caught up": {a.read(a.withoutRead), a.cluster, a.policy},
	} {
		t.Run(name, func(t *testing.T) {
			p := a.plan(t, role.Memory{Using: using}, nil, append(objs, a.endpoint)...)
			require.Len(t, p.Installed, 1)
			require.False(t, p.Installed[0].Idle)
			require.Equal(t, "ipsec", p.Installed[0].Driver.Name())
			require.Equal(t, using, p.Using)
			require.Empty(t, p.Mesh.Cables.Blackholed)
			g := &submarinerv1.Gateway{
				Status: submarinerv1.GatewayStatus{
					HAStatus:    submarinerv1.HAStatusActive,
					Connections: report.Connections(p, role.Outcome{}),
				},
			}
			require.Equal(t, key, UsingIn(g, time.Time{})[westCable].PublicKey, "a restarted agent has it, too")
		})
	}
}

// While a clusterset cannot be read, a new copy of a Cluster may be in it, too: policies of that
// clusterset would count for the pair.
func TestClusterSetNotRead(t *testing.T) {
	a := newArrivals(t)
	a.cluster.SetAnnotations(
		map[string]string{submarinerv1.ClusterSetsAnnotation: "default,lab" + submarinerv1.UnreadMark})
	objs := []client.Object{a.read(a.withoutRead), a.cluster, a.endpoint}
	p := a.plan(t, role.Memory{}, nil, objs...)
	require.Empty(t, p.Installed)
	require.ErrorContains(t, p.Mesh.Cables.Pending[0].Err,
		"waiting for clusterset lab on the broker, which cluster west may be in, too")
	p = a.plan(
		t,
		role.Memory{
			Using: map[string]role.Using{westCable: {Cluster: "west", Driver: "ipsec", Device: "ipsec-tunnel"}},
		},
		nil,
		objs...)
	require.Len(t, p.Installed, 1)
	require.Equal(t, "ipsec", p.Installed[0].Driver.Name())
}

// A member withdraws its Cluster object so that a pair keeps its cable without encryption, although
// this cluster has come to require encryption.
func TestWithdrawnClusterRemovesNoRequirement(t *testing.T) {
	a := newArrivals(t)
	for _, o := range a.always {
		if s, ok := o.(*v1alpha1.Submariner); ok {
			s.Spec.ClusterSets = []string{"lab"}
			s.Spec.Encryption = submarinerv1.EncryptionRequired
		}
	}
	using := map[string]role.Using{westCable: {Cluster: "west", Driver: "vxlan", Device: "vxlan-tunnel"}}
	p := a.plan(t, role.Memory{Using: using}, nil, a.read(a.withoutRead), a.endpoint)
	require.Empty(t, p.Installed)
	require.Contains(t, p.State.String(), "blackhole 10.112.0.0/16")

	for _, o := range a.always {
		if s, ok := o.(*v1alpha1.Submariner); ok {
			s.Spec.Encryption = ""
		}
	}
	require.Len(t, a.plan(t, role.Memory{Using: using}, nil, a.read(a.withoutRead), a.endpoint).Installed, 1)
	all := a.policy.DeepCopy()
	all.Labels[submarinerv1.ClusterSetLabel] = "lab"
	all.ConnectionPolicies[0].LeftClusterSelector = v1alpha1.ClusterSelector{}
	all.ConnectionPolicies[0].CableOptions = &v1alpha1.CableOptions{Encryption: submarinerv1.EncryptionRequired}
	require.Empty(t, a.plan(t, role.Memory{Using: using}, nil, a.read(a.withoutRead), a.endpoint, all).Installed,
		"a policy for all pairs")
}

// The two ends disagree for good: this one decides on a cable that the other end does not
// have. It sends nothing, and reports it.
func TestEndsDisagree(t *testing.T) {
	a := newArrivals(t)
	objs := []client.Object{a.read(a.withoutRead), a.cluster, a.endpoint}
	var m role.Memory
	health := map[string]role.Health{role.ProbeName(westCable, "vxlan-tunnel"): {Status: submarinerv1.ConnectionError}}
	for range 3 {
		p := a.plan(t, m, health, objs...)
		require.Len(t, p.Installed, 1)
		require.True(t, p.Installed[0].Idle)
		require.Contains(t, p.Probes.Targets, role.ProbeName(westCable, "vxlan-tunnel"), "it goes on trying")
		c := report.Connections(p, role.Outcome{Health: health})[0]
		require.Equal(t, submarinerv1.ConnectionError, c.Status)
		require.Contains(t, c.StatusMessage, "no traffic is sent until the cable answers")
		require.True(t, c.Idle)
		m.Using = p.Using
	}
}

// Labels that mark copies do not hide the objects of this cluster itself, whatever they say.
func TestLabelledObjectsStayOurs(t *testing.T) {
	for _, id := range []string{"east", "west"} {
		a := newArrivals(t)
		own := a.read(a.withPolicy)
		own.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: id, "site": "edge"})
		var endpoint *submarinerv1.Endpoint
		for _, o := range a.always {
			if e, ok := o.(*submarinerv1.Endpoint); ok {
				e.Labels = map[string]string{submarinerv1.ClusterIDLabel: id}
				endpoint = e
			}
		}
		made := a.policy.DeepCopy()
		made.Name = "made-here"
		made.Labels = map[string]string{submarinerv1.ClusterIDLabel: id}
		made.Status.ClusterSets = []string{"default"}
		objs := append(slices.Clone(a.always), own, made, a.cluster, a.endpoint)
		exchange.Reclaim(exchange.Kinds(), objs)
		s, err := FromReports("gw", objs...)
		require.NoError(t, err)
		m, err := Of(s)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"site": "edge"}, m.Membership.Cluster.Labels)
		require.Len(t, m.Membership.Clusters, 1)
		require.Equal(t, endpoint.Name, m.Membership.Endpoints[0].Endpoint.Name)
		require.Equal(t, []string{"default"}, role.List[*v1alpha1.CablePolicies](s)[0].ClusterSets())
		require.Equal(t, id, own.GetLabels()[submarinerv1.ClusterIDLabel], "what the cache holds is not changed")
	}
}

// A policy that names a ConfigMap whose settings were not copied yet decides, but not with the
// default settings: a pair waits, or keeps its cable.
func TestConfigMapArrivesLate(t *testing.T) {
	a := newArrivals(t)
	rule := &a.policy.ConnectionPolicies[0]
	rule.CableOptions = &v1alpha1.CableOptions{Metadata: v1alpha1.CableOptionsSource{Name: "tuned"}}
	require.NoError(t, policy.Check(a.policy), "it is shared")
	var spec v1alpha1.SubmarinerSpec
	for _, o := range a.always {
		if s, ok := o.(*v1alpha1.Submariner); ok {
			spec = s.Spec
		}
	}
	objs := []client.Object{
		a.read(PoliciesRead(spec, spec.Sets(), policy.Digest([]*v1alpha1.CablePolicies{a.policy}))),
		a.cluster,
		a.endpoint,
		a.policy,
	}
	p := a.plan(t, role.Memory{}, nil, objs...)
	require.Empty(t, p.Installed)
	require.ErrorContains(t, p.Mesh.Cables.Refused[0].Err,
		`the settings of ConfigMap "tuned" have not been copied into the policy yet`)
	using := map[string]role.Using{
		westCable: {Cluster: "west", Driver: "ipsec", Device: "ipsec-tunnel", Policy: "before"},
	}
	p = a.plan(t, role.Memory{Using: using}, nil, objs...)
	require.Len(t, p.Installed, 1)
	require.Equal(t, "before", p.Installed[0].Policy)
	require.Contains(t, p.Mesh.Cables.KeptReasons[westCable], "stays ipsec")
}
