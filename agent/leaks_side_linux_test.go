package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
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

// member is a side that publishes what its agents would, and that has keys: its cables can be of
// any driver.
type member struct {
	*side
	driver    cable.Driver
	ring      *keys.Ring
	hosts     map[string]*kernel.Host // of the gateway, by role: they run the programs of its cables
	announced []client.Object         // its Endpoint and Cluster
	device    string                  // of its cables
	told      strings.Builder         // plans, reports, metrics and changes of all its nodes
	keyLog    string                  // file to which its IKE daemon logs keys, if it is an attacker's
	wide      string                  // the cluster to which its IPsec tunnel has wide selectors, if any
}

func newMember(t testing.TB, fabric *nstest.NS, n int, id string, d cable.Driver) *member {
	t.Helper()
	private, err := keys.ParsePrivate(bytes.Repeat([]byte{byte(n)}, keys.Size))
	require.NoError(t, err)
	m := &member{side: newSide(t, fabric, n, id), driver: d, hosts: map[string]*kernel.Host{}, ring: &keys.Ring{
		Cluster: id,
		Private: private,
		Seed:    bytes.Repeat([]byte{byte(n + 100)}, keys.Size),
		PSK:     bytes.Repeat([]byte{0x77}, 48),
	}}
	gw := m.nodes["gw"]
	gw.Private(nstest.UAPIDir)
	for _, ns := range m.nodes { // as careless as a node may be
		ns.Run("for d in /proc/sys/net/ipv4/conf/*; do echo 0 >$d/rp_filter; done; iptables -P FORWARD ACCEPT")
	}
	gw.Do(func() {
		for _, o := range dataplane.Owners() {
			m.hosts[o.Name], err = kernel.New(o)
			require.NoError(t, err)
		}
	})
	t.Cleanup(func() {
		gw.Do(func() {
			// ends programs
			_, _ = dataplane.Sync(context.Background(), m.hosts[dataplane.GatewayOwner.Name], dataplane.State{})
			for _, h := range m.hosts {
				h.Close()
			}
		})
	})
	return m
}

// snapshot returns what the agents of a node know, in a cluster that knows the others.
func (m *member) snapshot(t testing.TB, node string, others ...*member) role.Snapshot {
	t.Helper()
	all := m.objects()
	all = append(all[:len(all)-1], m.announced...) // without the Endpoint of a side
	for _, o := range all {
		if s, ok := o.(*v1alpha1.Submariner); ok {
			s.Spec.CableDriver = m.driver.Name()
		}
	}
	for _, other := range others {
		for _, o := range other.announced {
			copied := o.DeepCopyObject().(client.Object)
			copied.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: other.id})
			if _, ok := copied.(*submarinerv1.Cluster); ok {
				copied.SetAnnotations(
					map[string]string{submarinerv1.ClusterSetsAnnotation: submarinerv1.DefaultClusterSet})
			}
			all = append(all, copied)
		}
	}
	facts := map[string]dataplane.Facts{}
	for name, ns := range m.nodes {
		ns.Do(func() {
			var err error
			facts[name], err = kernel.ReadFacts()
			require.NoError(t, err)
		})
	}
	for _, o := range all {
		if ra, ok := o.(*submarinerv1.RouteAgent); ok {
			f := facts[ra.Name]
			ra.Status.Node.WireGuard = submarinerv1.EngineFact{Name: f.WireGuard.Name, Missing: f.WireGuard.Missing}
			ra.Status.Node.IPsec = submarinerv1.EngineFact{Name: f.IPsec.Name, Missing: f.IPsec.Missing}
		}
	}
	snap := role.NewSnapshot(node, all...)
	members.SetFacts(&snap, facts[node])
	snap.Now = time.Now()
	snap.PodIPMissing = false
	snap.NoCableRule = false
	snap.PoliciesDigest = policy.Digest(nil)
	snap.Keys = m.ring
	if node == "gw" {
		snap.Standing = active("gw")
	}
	known, err := mesh.Of(snap)
	require.NoError(t, err)
	if err := m.driver.Lacks(known.Offer.Local); err != nil && node == "gw" {
		nstest.Kernel(
			t,
			map[cable.Protocol]string{
				cable.ProtocolWireGuard: "wireguard",
				cable.ProtocolIPsec:     "esp",
			}[m.driver.Properties().Engine],
		)
		require.NoError(t, err)
	}
	snap.Memory.Using = map[string]role.Using{} // every cable has answered
	for _, c := range known.Cables.Wanted {
		snap.Memory.Using[c.Name] = role.Using{
			Cluster:   c.Cluster,
			Driver:    c.Driver.Name(),
			Device:    c.Device(),
			Config:    c.Config,
			Shared:    c.Shared,
			Policy:    c.Policy,
			Rule:      c.Rule,
			PublicKey: c.PublicKey,
		}
		m.device = c.Device()
	}
	require.Empty(t, known.Cables.Refused)
	return snap
}

// publish makes what the cluster announces.
func (m *member) publish(t testing.TB) {
	t.Helper()
	snap := m.snapshot(t, "gw")
	agentRole := roles.Gateway()
	p, err := agentRole.Plan(snap)
	require.NoError(t, err)
	for _, o := range agentRole.Report(snap, p, role.Outcome{Now: snap.Now, Contained: true}).Apply {
		switch o := o.(type) {
		case *submarinerv1.Endpoint:
			m.announced = append(m.announced, o)
		case *submarinerv1.Cluster:
			m.announced = append(m.announced, o)
		}
	}
	require.Len(t, m.announced, 2)
}

// sync does what the agents of every node do, knowing the given other clusters.
func (m *member) sync(t testing.TB, others ...*member) {
	t.Helper()
	for name, ns := range m.nodes {
		snap := m.snapshot(t, name, others...)
		for _, role := range roles.OfNodes() {
			p, err := role.Plan(snap)
			require.NoError(t, err)
			m.widen(p.State)
			ns.Do(func() {
				h := m.hosts[role.Owner.Name]
				if name != "gw" {
					h, err = kernel.New(role.Owner)
					require.NoError(t, err)
					defer h.Close()
				}
				ops, err := dataplane.Sync(context.Background(), h, p.State)
				require.NoError(t, err)
				drops, err := h.Drops()
				require.NoError(t, err)
				m.tell(t, role, snap, p, drops, ops)
			})
		}
	}
}

// widen lets the tunnel to the cluster m.wide carry packets between all addresses. It leaves out
// the networks with the addresses of the gateways themselves, as userspace ESP refuses them.
func (m *member) widen(s dataplane.State) {
	for key, o := range s {
		if tunnel, ok := o.(dataplane.Tunnel); ok && m.wide != "" && strings.Contains(tunnel.RemoteID, m.wide) {
			all := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/1"), netip.MustParsePrefix("192.0.0.0/2")}
			tunnel.LocalTS = all
			tunnel.RemoteTS = all
			s[key] = tunnel
		}
	}
}

// tell notes what an agent prints and reports.
func (m *member) tell(
	t testing.TB,
	agentRole role.Role,
	snap role.Snapshot,
	p role.Plan,
	drops map[string]uint64,
	ops []dataplane.Op,
) {
	t.Helper()
	snap.Drops = drops
	o := role.Outcome{Now: snap.Now, Contained: true, Health: map[string]role.Health{}}
	for name := range p.Probes.Targets {
		o.Health[name] = role.Health{Status: submarinerv1.Connected}
	}
	report := agentRole.Report(snap, p, o)
	text, err := json.Marshal(report)
	require.NoError(t, err)
	registry := prometheus.NewRegistry()
	meters := newMeters(agentRole.Name, registry)
	meters.observe(p, len(ops), time.Second, o)
	meters.setReported(report, o)
	meters.addDropped(drops, nil)
	metrics, err := registry.Gather()
	require.NoError(t, err)
	fmt.Fprintln(&m.told, p.State.String(), string(text), metrics, ops, p.Probes, drops)
}

// link returns the address of the cluster's gateway on the device of its cables.
func (m *member) link() string {
	net := map[string]byte{
		dataplane.VXLANDevice:          dataplane.VXLANNet,
		dataplane.WireGuardDevice:      dataplane.WireGuardNet,
		dataplane.IPsecDevice:          dataplane.IPsecNet,
		dataplane.VXLANWireGuardDevice: dataplane.VXLANWireGuardNet,
		dataplane.VXLANIPsecDevice:     dataplane.VXLANIPsecNet,
	}[m.device]
	return cable.VTEPOf(net, netip.MustParseAddr(m.node("gw"))).String()
}

// carrier returns the address of the cluster's gateway on WireGuard, which may carry VXLAN.
func (m *member) carrier() string {
	return cable.VTEPOf(dataplane.WireGuardNet, netip.MustParseAddr(m.node("gw"))).String()
}

// node returns the address of a node.
func (m *member) node(name string) string {
	return fmt.Sprintf("172.18.%d.%d", m.n, map[string]int{"gw": 11, "worker": 12}[name])
}

// host returns a pod as nstest knows it.
func (m *member) host(node string) nstest.Host {
	return nstest.Host{NS: m.pods[node], IP: m.podIP(node)}
}
