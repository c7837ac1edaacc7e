package mesh

import (
	"slices"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/dataplane"
)

// PlanRoute returns the plan of a route agent, which runs on every node: the paths between the
// nodes and the gateways of one cluster.
func PlanRoute(s role.Snapshot) (Plan, error) {
	m, err := ofGateway(s)
	if err != nil {
		return Plan{}, err
	}
	reached := m.addOtherGateways()
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
	p.acceptAgain()
	in := cable.Intra{
		Self:        m.Membership.Self,
		MTU:         s.Facts.MTU,
		PodIP:       m.Offer.Local.PodIP,
		OwnPodIP:    s.Facts.PodIPPlanned,
		Gateways:    gateways,
		Ranked:      m.Membership.Labelled,
		Local:       m.Membership.Own,
		Remote:      reached,
		Blackholed:  m.Cables.Blackholed,
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
		p.Using[c.Name] = asUsing(c)
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
		addNodeProbes(members, &p.Probes, in)
	}
	return p, nil
}

// addNodeProbes adds the other gateways of this cluster to the addresses to ping, if there are
// several gateways, and on a gateway the workers.
func addNodeProbes(m members.Membership, p *role.Probes, in cable.Intra) {
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
