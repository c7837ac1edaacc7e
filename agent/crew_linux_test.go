package agent

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/keys"
	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/internal/nstest"
	"subctl/policy"
)

// crew is a cluster of two gateway nodes and a worker whose agents run as they do in pods: each
// plan takes over from the one before, what they publish is what others know of them, and a cable
// answers if pings over it do.
type crew struct {
	*side
	driver   string
	offers   []string // drivers; nil for all
	policy   string   // the driver that a cable policy specifies; empty if there is none
	multi    bool
	standing map[string]role.Standing // of the gateway nodes
	ring     *keys.Ring
	hosts    map[[2]string]*kernel.Host // of the gateway nodes, by node and role
	facts    map[string]dataplane.Facts // as the world began; a test may take the engine of a node away
	memory   map[string]role.Memory
	// published are the Endpoints and the Cluster, by name, and reported the Gateways, by node.
	published map[string]client.Object
	reported  map[string]*submarinerv1.Gateway
	// older is set for a cluster whose agents are of a version that announces no octets, and reads
	// none.
	older bool
}

func newCrew(t testing.TB, fabric *nstest.NS, n int, id, driver string) *crew {
	t.Helper()
	return newCrewOf(t, twoGateways(t, fabric, n, id), driver)
}

// newCrewOf returns a cluster of two gateways whose agents run.
func newCrewOf(t testing.TB, s *side, driver string) *crew {
	t.Helper()
	n := s.n
	id := s.id
	private, err := keys.ParsePrivate(bytes.Repeat([]byte{byte(n)}, keys.Size))
	require.NoError(t, err)
	c := &crew{
		side:      s,
		driver:    driver,
		standing:  map[string]role.Standing{},
		hosts:     map[[2]string]*kernel.Host{},
		facts:     map[string]dataplane.Facts{},
		memory:    map[string]role.Memory{},
		published: map[string]client.Object{},
		reported:  map[string]*submarinerv1.Gateway{},
		ring: &keys.Ring{
			Cluster: id,
			Private: private,
			Seed:    bytes.Repeat([]byte{byte(n + 100)}, keys.Size),
			PSK:     bytes.Repeat([]byte{0x77}, 48),
		},
	}
	c.side.plans = map[[2]string]role.Plan{}
	for _, node := range c.names {
		ns := c.nodes[node]
		ns.Private(nstest.UAPIDir)
		ns.Do(func() {
			c.facts[node], err = kernel.ReadFacts()
			require.NoError(t, err)
			for _, r := range roles.OfNodes() {
				c.hosts[[2]string{node, r.Name}], err = kernel.New(r.Owner)
				require.NoError(t, err)
			}
		})
		t.Cleanup(func() {
			ns.Do(func() {
				for _, r := range roles.OfNodes() {
					h := c.hosts[[2]string{node, r.Name}]
					_, _ = dataplane.Sync(context.Background(), h, dataplane.State{}) // ends programs
					h.Close()
				}
			})
		})
	}
	c.single()
	return c
}

// single makes gw the only active gateway, and gw2 a standby.
func (c *crew) single() {
	c.multi = false
	c.standing["gw"] = role.Standing{Active: true, Speaker: true, Gateways: []string{"gw", "gw2"}}
	c.standing["gw2"] = role.Standing{Active: true, Drain: cable.Standby}
}

// both makes both gateways active.
func (c *crew) both() {
	c.multi = true
	c.standing["gw"] = role.Standing{Active: true, Speaker: true, Gateways: []string{"gw", "gw2"}}
	c.standing["gw2"] = role.Standing{Active: true}
}

// leaveRole lets gw2 leave its role to gw.
func (c *crew) leaveRole() {
	c.single()
	c.standing["gw2"] = role.Standing{Active: true, Drain: cable.Draining}
}

// snapshot returns what an agent of a node knows.
func (c *crew) snapshot(t testing.TB, node string, r role.Role, others ...*crew) role.Snapshot {
	t.Helper()
	var all []client.Object
	for _, o := range c.objects() {
		switch o := o.(type) {
		case *v1alpha1.Submariner:
			o.Spec.CableDriver = c.driver
			o.Spec.CableDrivers = c.offers
			o.Spec.MultiActiveGatewayEnabled = c.multi
		case *submarinerv1.RouteAgent:
			f := c.facts[o.Name]
			o.Status.Node.WireGuard = submarinerv1.EngineFact{Name: f.WireGuard.Name, Missing: f.WireGuard.Missing}
			o.Status.Node.IPsec = submarinerv1.EngineFact{Name: f.IPsec.Name, Missing: f.IPsec.Missing}
		case *corev1.Node:
		default: // a side's Endpoints
			continue
		}
		all = append(all, o)
	}
	for _, o := range c.published {
		all = append(all, o)
	}
	for _, g := range c.reported {
		all = append(all, g)
	}
	for _, other := range others {
		for _, o := range other.published {
			copied := o.DeepCopyObject().(client.Object)
			if e, ok := copied.(*submarinerv1.Endpoint); ok && (c.older || other.older) {
				delete(e.Spec.BackendConfig, submarinerv1.BackendOctets)
			}
			copied.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: other.id})
			if _, ok := copied.(*submarinerv1.Cluster); ok {
				copied.SetAnnotations(
					map[string]string{submarinerv1.ClusterSetsAnnotation: submarinerv1.DefaultClusterSet})
			}
			all = append(all, copied)
		}
	}
	var policies []*v1alpha1.CablePolicies
	if c.policy != "" {
		policies = append(policies, &v1alpha1.CablePolicies{
			ObjectMeta: metav1.ObjectMeta{
				Name: "change", Namespace: submarinerv1.OperatorNamespace,
				Labels: map[string]string{
					submarinerv1.ClusterIDLabel:  "west",
					submarinerv1.ClusterSetLabel: submarinerv1.DefaultClusterSet,
				},
			},
			ConnectionPolicies: []v1alpha1.CablePolicySpec{
				{CableDriver: c.policy, CableOptions: &v1alpha1.CableOptions{}},
			},
		})
		all = append(all, policies[0])
	}
	snap := role.NewSnapshot(node, all...)
	c.nodes[node].Do(func() {
		k, err := kernel.ReadFacts()
		require.NoError(t, err)
		k.WireGuard = c.facts[node].WireGuard
		k.IPsec = c.facts[node].IPsec
		members.SetFacts(&snap, k)
	})
	snap.PodIPMissing = false
	snap.NoCableRule = false
	snap.PoliciesDigest = policy.Digest(policies)
	snap.Keys = c.ring
	if r.Name == roles.Gateway().Name {
		snap.Standing = c.standing[node]
		snap.Memory = c.memory[node]
		snap.Health = c.probe(node, c.plans[[2]string{node, r.Name}].Probes)
		c.nodes[node].Do(func() {
			var err error
			snap.Cables, err = c.hosts[[2]string{node, r.Name}].CableStates()
			require.NoError(t, err)
		})
		snap.Cables = append([]dataplane.CableState{}, snap.Cables...) // not nil: they are known
	}
	snap.Now = time.Now()
	return snap
}

// probe pings what an agent probes.
func (c *crew) probe(node string, p role.Probes) map[string]role.Health {
	var mu sync.Mutex
	var all sync.WaitGroup
	health := map[string]role.Health{}
	for name, target := range p.Targets {
		if time.Now().Before(target.First) {
			continue
		}
		all.Go(func() {
			h := role.Health{Status: submarinerv1.Connecting}
			if _, err := c.nodes[node].Try(fmt.Sprintf("ping -c1 -W1 -I %v %v", target.From, target.IP)); err == nil {
				h.Status = submarinerv1.Connected
			}
			mu.Lock()
			health[name] = h
			mu.Unlock()
		})
	}
	all.Wait()
	return health
}

// pass runs the loop of every agent once.
func (c *crew) pass(t testing.TB, others ...*crew) {
	t.Helper()
	for _, node := range c.names {
		c.passOf(t, node, others...)
	}
}

// passOf runs the loops of the agents of one node once.
func (c *crew) passOf(t testing.TB, node string, others ...*crew) {
	t.Helper()
	for _, r := range roles.OfNodes() {
		if r.Name == roles.Gateway().Name && !c.isGateway(node) {
			continue
		}
		snap := c.snapshot(t, node, r, others...)
		p, err := r.Plan(snap)
		require.NoError(t, err)
		at := [2]string{node, r.Name}
		c.plans[at] = p
		c.nodes[node].Do(func() {
			_, err := dataplane.Sync(context.Background(), c.hosts[at], p.State)
			require.NoError(t, err)
		})
		if r.Name != roles.Gateway().Name {
			continue
		}
		c.memory[node] = role.Memory{
			Using:      mesh.PlanOf(p).Using,
			First:      mesh.PlanOf(p).First,
			Retiring:   mesh.PlanOf(p).Retiring,
			Incumbents: mesh.PlanOf(p).Mesh.Accepted.Incumbents,
		}
		report := r.Report(snap, p, role.Outcome{Now: snap.Now, Contained: true, Health: snap.Health})
		for _, o := range report.Apply {
			switch o := o.(type) {
			case *submarinerv1.Gateway:
				c.reported[node] = o
			case *submarinerv1.Endpoint, *submarinerv1.Cluster:
				if e, ok := o.(*submarinerv1.Endpoint); ok && c.older {
					delete(e.Spec.BackendConfig, submarinerv1.BackendOctets)
				}
				c.published[o.GetName()] = o
			}
		}
		for _, o := range report.Delete {
			if _, ok := o.(*submarinerv1.Endpoint); ok {
				delete(c.published, o.GetName())
			}
		}
	}
}

// cables returns the cables, as "gw-gw2 wireguard", and what is wrong with them.
func (c *crew) cables() (out []string) {
	for node, g := range c.reported {
		for _, conn := range g.Status.Connections {
			text := fmt.Sprintf("%s-%s %s", node, conn.Endpoint.Hostname, conn.Driver)
			if conn.Status != submarinerv1.Connected || conn.DesiredDriver != conn.Driver {
				text += " " + string(conn.Status) + " " + conn.StatusMessage
			}
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return out
}
