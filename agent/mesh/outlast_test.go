package mesh_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
)

// outlasting is a gateway that has cables to two gateways of west, and gets a policy for a driver
// that connects to one of them.
type outlasting struct {
	*testing.T
	crowd crowd
	s     role.Snapshot
	p     Plan
}

const (
	noStandIn = "vxlan,wireguard,ipsec"
	toFirst   = "submariner-cable-west-10-89-2-11 over "
)

func newOutlasting(t *testing.T, c crowd) *outlasting {
	t.Helper()
	c.policy = cable.VXLAN
	c.siblings = 1
	c.west = two(noStandIn)
	o := &outlasting{T: t, crowd: c, s: c.snapshot(t)}
	vxlan := role.Using{Cluster: "west", Driver: cable.VXLAN, Device: dataplane.VXLANDevice, Policy: "lab"}
	o.s.Memory.Using = map[string]role.Using{westCable: vxlan, west2Cable: vxlan}
	require.Equal(t, []string{"11 vxlan", "12 vxlan"}, o.pass(cable.VXLAN, 0))
	return o
}

// pass makes the next plan, some time after the last one, and returns the cables: "12 vxlan",
// followed by "idle" if they carry nothing. The probes that are given are answered.
func (o *outlasting) pass(policy string, later time.Duration, answer ...string) (cables []string) {
	o.Helper()
	o.crowd.policy = policy
	next := o.crowd.snapshot(o.T)
	for _, report := range role.List[*submarinerv1.Gateway](o.s) {
		next = with(next, report)
	}
	next.Now = o.s.Now.Add(later)
	next.Memory = o.s.Memory
	next.Health = map[string]role.Health{}
	next.NoteReports(o.s.ReportTimes)
	for _, a := range answer {
		next.Health[a] = role.Health{Status: submarinerv1.Connected}
	}
	var err error
	o.p, err = PlanGateway(next)
	require.NoError(o, err)
	o.s = next
	o.s.Memory.Using, o.s.Memory.First, o.s.Memory.Retiring = o.p.Using, o.p.First, o.p.Retiring
	for _, c := range o.p.Installed {
		text := c.Name[len(c.Name)-2:] + " " + c.Driver.Name()
		if !c.Carries() {
			text += " idle"
		}
		cables = append(cables, text)
	}
	return cables
}

// connections returns the reported connections, whose gateways answer.
func (o *outlasting) connections() (out []string) {
	health := map[string]role.Health{
		westCable:  {Status: submarinerv1.Connected},
		west2Cable: {Status: submarinerv1.Connected},
	}
	for _, c := range report.Connections(o.p, role.Outcome{Now: o.s.Now, Health: health}) {
		text := c.Endpoint.CableName[len(c.Endpoint.CableName)-2:] + " " + c.Driver + "→" + c.DesiredDriver + " " +
			string(c.Status)
		out = append(out, text)
	}
	return out
}

// sibling lets the other gateway of the cluster report a connection.
func (o *outlasting) sibling(c submarinerv1.Connection) {
	c.Endpoint.ClusterID = "west"
	o.report("gw2", submarinerv1.GatewayStatus{Connections: []submarinerv1.Connection{c}})
}

// report lets a gateway of the cluster report. The clocks of siblings are wrong.
func (o *outlasting) report(node string, status submarinerv1.GatewayStatus) {
	g := &submarinerv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: node, Namespace: submarinerv1.OperatorNamespace},
		Status:     status,
	}
	if g.SetReportedAt(o.s.Now); node != o.s.Node {
		g.SetReportedAt(o.s.Now.Add(-time.Hour))
	}
	o.s = with(o.s, g)
	o.s.NoteReports(o.s.ReportTimes)
}

// A pair of gateways whose cable has no successor, as the driver connects to another gateway of the
// cluster, keeps it until the cable to that one works, and for a while for what the other end still
// sends. A change back waits for the other end.
func TestOutlast(t *testing.T) {
	for driver, device := range map[string]string{
		cable.IPsec:     "ipsec-tunnel",
		cable.WireGuard: dataplane.WireGuardDevice,
	} {
		o := newOutlasting(t, crowd{})
		waiting := []string{"11 vxlan", "11 " + driver + " idle", "12 vxlan"}
		require.Equal(t, waiting, o.pass(driver, time.Second))
		require.Equal(t, waiting, o.pass(driver, time.Hour))
		require.Equal(t, []string{"11 vxlan→" + driver + " connecting", "12 vxlan→" + driver + " connecting"},
			o.connections())
		require.Equal(t, []string{"11 vxlan idle", "11 " + driver, "12 vxlan"},
			o.pass(driver, time.Second, toFirst+device), "the node does not hold the new one yet")
		require.Equal(t, []string{"11 vxlan idle", "11 " + driver, "12 vxlan idle"}, o.pass(driver, time.Second))
		require.Equal(t, []string{"11 " + driver + "→" + driver + " connected", "12 → error"}, o.connections())
		before := o.s

		require.Equal(t, []string{"11 " + driver, "12 vxlan idle"}, o.pass(driver, OldCableGrace-time.Second))
		require.Equal(t, []string{"11 " + driver}, o.pass(driver, time.Second))

		o.s = before
		back := []string{"11 " + driver, "11 vxlan idle", "12 vxlan idle"}
		probe := role.ProbeName(west2Cable, dataplane.VXLANDevice)
		require.Equal(t, back, o.pass(cable.VXLAN, time.Second, probe), "the other end may be about to remove it")
		require.Equal(t, o.s.Now.Add(Decided), o.p.Probes.Targets[probe].First)
		require.Equal(t, []string{"11 " + driver, "11 vxlan idle", "12 vxlan"}, o.pass(cable.VXLAN, time.Second, probe))
	}
}

// If a sibling has a working cable with the new driver, a gateway leaves its old cable, even if the
// new driver has a place for its own pair here: at the other end, there may be none. What a gateway
// has reported that may be dead is no reason.
func TestOutlastBySibling(t *testing.T) {
	o := newOutlasting(t, crowd{})
	waiting := []string{"11 vxlan", "11 ipsec idle", "12 vxlan"}
	o.sibling(
		submarinerv1.Connection{
			Driver:        cable.VXLAN,
			DesiredDriver: cable.IPsec,
			Status:        submarinerv1.Connecting,
			Member:        new(true),
		},
	)
	require.Equal(t, waiting, o.pass(cable.IPsec, time.Second))
	require.Len(t, o.p.Siblings["west"], 1, "it carries packets while it changes its cable")
	o.sibling(
		submarinerv1.Connection{
			Driver:        cable.IPsec,
			DesiredDriver: cable.IPsec,
			Status:        submarinerv1.Connecting,
			Idle:          true,
			Member:        new(false),
		},
	)
	require.Equal(t, waiting, o.pass(cable.IPsec, time.Second))
	require.Empty(t, o.p.Siblings)

	working := submarinerv1.Connection{
		Driver:        cable.IPsec,
		DesiredDriver: cable.IPsec,
		Status:        submarinerv1.Connected,
		Member:        new(true),
	}
	o.sibling(working)
	o.s.Now = o.s.Now.Add(role.DeadAfter)
	o.report("gw", submarinerv1.GatewayStatus{})
	require.Equal(t, waiting, o.pass(cable.IPsec, time.Second))
	o.sibling(working)
	require.Equal(t, []string{"11 vxlan idle", "11 ipsec idle", "12 vxlan idle"}, o.pass(cable.IPsec, time.Second))
	require.Len(t, o.p.Siblings["west"], 1)
	require.Equal(t, []string{"11 ipsec→ipsec connecting", "12 → error"}, o.connections())
	require.Equal(t, []string{"11 ipsec idle"}, o.pass(cable.IPsec, OldCableGrace))
	require.Equal(t, []string{"11 ipsec"}, o.pass(cable.IPsec, time.Second, toFirst+"ipsec-tunnel"),
		"it has a place at the other end after all")
}

// Nothing stays in clear text that must be encrypted, and no driver that one end does not offer any
// more.
func TestOutlastIsNoExcuse(t *testing.T) {
	o := newOutlasting(t, crowd{})
	o.crowd.required = true
	require.Equal(t, []string{"11 ipsec"}, o.pass(cable.IPsec, time.Second))
	for _, leaving := range []bool{false, true} {
		o = newOutlasting(t, crowd{})
		want := []string{"11 vxlan", "11 ipsec idle", "12 vxlan"}
		if leaving {
			o.pass(cable.IPsec, time.Second, toFirst+"ipsec-tunnel")
			want = []string{"11 vxlan idle", "11 ipsec", "12 vxlan idle"}
		}
		require.Equal(t, want, o.pass(cable.IPsec, time.Second))
		before := o.s
		o.crowd.required = true
		require.Equal(t, []string{"11 ipsec"}, o.pass(cable.IPsec, time.Second))
		o.s = before
		o.crowd.required = false
		o.crowd.west = two("wireguard,ipsec")
		require.Equal(t, []string{"11 ipsec"}, o.pass(cable.IPsec, time.Second))
	}
}
