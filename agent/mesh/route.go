package mesh

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/dataplane"
	"subctl/internal/version"
)

// Route returns the role of the route agent, which runs on every node: the paths between
// the nodes and the gateways of one cluster.
//
// It does not watch Gateways, each of which is written every few seconds, nor ConfigMaps:
// the settings in force are noted on the Cluster object.
func Route() role.Role {
	watches := slices.DeleteFunc(role.Kinds(), func(o role.Object) bool {
		switch o.(type) {
		case *submarinerv1.Gateway, *corev1.ConfigMap:
			return true
		}
		return false
	})
	return role.Role{
		Name:        "route",
		Owner:       dataplane.RouteOwner,
		MetricsPort: dataplane.RouteMetricsPort,
		ProbePort:   dataplane.RouteProbePort,
		Resync:      30 * time.Second,
		Watches:     watches,
		Parts:       []role.Part{role.Probing, role.Drops, role.Forwarding, role.APIServers},
		Plan:        deciding(planRoute),
		Report: func(s role.Snapshot, p role.Plan, o role.Outcome) role.Report {
			return reportRoute(s, PlanOf(p), o)
		},
		Recall: func(_ string, _ bool, reports []*submarinerv1.Gateway, now time.Time) role.Memory {
			return recall(reports, reports, now)
		},
	}
}

func planRoute(s role.Snapshot) (Plan, error) {
	m, err := ofGateway(s)
	if err != nil {
		return Plan{}, err
	}
	reached := m.throughAny()
	p := Plan{
		Plan: role.Plan{State: dataplane.State{}}, Traffic: Traffic{Using: map[string]role.Using{}}, Mesh: m,
		Label: members.Label(s),
	}
	if !p.Label.Seen && (p.Label.Until.IsZero() || m.Membership.Leaving()) {
		// No gateway agent runs here; one that did has left its objects in place.
		p.Sweep = []dataplane.Owner{dataplane.GatewayOwner}
	}
	if m.Membership.Leaving() {
		return p, nil
	}
	members := m.Membership.WithRule(p.Label)
	gateways, again := members.Observed(s.Health, s.Now)
	p.Again = again
	if left := p.Label.Until.Sub(s.Now); left > 0 && (again == 0 || left < again) {
		p.Again = left
	}
	p.againForIncumbents()
	in := cable.Intra{
		Self:        m.Membership.Self,
		MTU:         s.Facts.MTU,
		PodIP:       m.Offer.Local.PodIP,
		OwnPodIP:    s.Facts.PodIPPlanned,
		Gateways:    gateways,
		Ranked:      m.Membership.Labelled,
		Local:       m.Membership.Own,
		Remote:      reached,
		Barred:      m.Cables.Barred,
		Resilient:   s.Facts.ResilientGroups,
		FormerRules: s.FormerRules,
	}
	in.Ends = slices.Clone(m.Membership.Own.Nodes)
	for _, n := range m.Membership.Nodes {
		in.Ends = append(in.Ends, n.IP) // also the address of another cluster's gateway: see Membership.addressesOf
		if !slices.ContainsFunc(in.Gateways, func(g cable.Node) bool { return g.Name == n.Name }) {
			n.Down = m.Snapshot.Health[role.WorkerProbe(n)].Status == submarinerv1.ConnectionError
			in.Workers = append(in.Workers, n)
			// one of these deletes the Endpoint
			if m.Membership.HasEndpoint(n) && n.Name != s.Node && len(gateways) > 0 {
				in.Former = append(in.Former, n)
			}
		}
	}
	in.Returned = m.Membership.Returned()
	in.VXLANPorts, in.OnlyOurDevices = drivers.VXLANPorts(m.Offer.Local), onlyOurDevices(s, in)
	for _, c := range m.Cables.Wanted {
		in.Ends = append(in.Ends, c.Address, c.PrivateIP)
		p.Using[c.Name] = using(c)
	}
	if p.State, err = cable.PlanIntra(in); err != nil {
		return Plan{}, err
	}
	p.Forward = p.forwardProbe(in)
	if s.Facts.NoNextHopObjects {
		p.State = p.State.WithoutNexthops()
	}
	p.Probes = m.Cables.pathProbes(m.Membership, m.Offer.Local.PodIP)
	if p.Label.Until.IsZero() { // else the other nodes return no echoes any more
		probeNodes(members, &p.Probes, in)
	}
	return p, nil
}

// probeNodes adds the other gateways of this cluster to the addresses to ping, if there are several
// gateways, and on a gateway the workers.
func probeNodes(m members.Membership, p *role.Probes, in cable.Intra) {
	if len(m.Gateways) < 2 {
		return
	}
	from := cable.VTEPOf(dataplane.IntraVTEPNet, m.Self.IP)
	p.Echo = dataplane.IntraEchoPort
	for _, g := range m.Siblings() {
		ip, mac := cable.VTEP(dataplane.IntraVTEPNet, g.IP)
		p.Targets[role.GatewayProbe(g)] = role.Target{
			IP:   ip,
			From: from,
			Who:  "it",
			Fast: true,
			Echo: role.Echo{Device: dataplane.IntraDevice, MAC: mac, MTU: in.MTU - dataplane.VXLANOverhead},
		}
	}
	if len(m.Siblings()) == len(m.Gateways) {
		return // this node is a worker
	}
	for _, w := range in.Workers {
		if w.Pods.IsValid() { // else the CNI routes to them
			p.Targets[role.WorkerProbe(w)] = role.Target{
				IP:   cable.VTEPOf(dataplane.IntraVTEPNet, w.IP),
				From: from,
				Who:  "it",
				Fast: true,
			}
		}
	}
}

// onlyOurDevices reports whether packets of other clusters reach this node only on our devices.
// They reach a worker, and a gateway that has siblings, on devices of the CNI until the other
// gateways know the network of its pods from its report.
func onlyOurDevices(s role.Snapshot, in cable.Intra) bool {
	if len(in.Gateways) == 1 && in.Gateways[0].Name == in.Self.Name {
		return true
	}
	ra := role.Find[*submarinerv1.RouteAgent](s, in.Self.Name)
	return in.Self.Pods.IsValid() && ra != nil && ra.Status.Node != nil && ra.Status.Node.PodIP == s.Facts.PodIP
}

func reportRoute(s role.Snapshot, p Plan, o role.Outcome) role.Report {
	old := role.Find[*submarinerv1.RouteAgent](s, s.Node)
	ra := &submarinerv1.RouteAgent{
		ObjectMeta: metav1.ObjectMeta{Name: s.Node, Namespace: submarinerv1.OperatorNamespace},
		Status: submarinerv1.RouteAgentStatus{
			Version: version.Version, Node: members.ReportedFacts(s),
		},
	}
	ra.Status.RemoteEndpoints, ra.Status.RemoteEndpointsOmitted = p.remoteEndpoints(o)
	if n := role.Find[*corev1.Node](s, s.Node); n != nil { // deleted with its node
		ra.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}
	}
	if err := o.Failure(); err != nil {
		ra.Status.StatusFailure = role.Clip(err.Error())
	}
	var was []metav1.Condition
	if old != nil {
		was = old.Status.Conditions
	}
	ra.Status.Conditions = conditions(was, p, o)
	if p.Mesh == nil && old != nil { // a mistake of the user: the node holds the previous plan
		ra.Status.RemoteEndpoints = slices.Clone(old.Status.RemoteEndpoints)
		ra.Status.RemoteEndpointsOmitted = old.Status.RemoteEndpointsOmitted
	}
	if old == nil {
		return role.Report{Apply: []role.Object{ra}}
	}
	var r role.Report
	own, others := routeAgentChanges(old.Status, ra.Status)
	apply(&r, ra, own, others)
	return r
}
