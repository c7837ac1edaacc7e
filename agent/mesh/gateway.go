package mesh

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/version"
)

// Gateway returns the role of a gateway pod. The gateway holds the cables and publishes
// its Endpoint while it is active or a standby, and publishes the cluster while it is the speaker.
func Gateway() role.Role {
	return role.Role{
		Name:          "gateway",
		Owner:         dataplane.GatewayOwner,
		MetricsPort:   dataplane.GatewayMetricsPort,
		ProbePort:     dataplane.GatewayProbePort,
		Resync:        role.Heartbeat,
		Watches:       role.Kinds(),
		GlobalWatches: TranslatedKinds(),
		Parts: []role.Part{
			role.Election, role.KeyRing, role.Probing, role.Discovery, role.PublicIP, role.KernelView, role.Drops,
			role.FlowCount, role.Exchange, role.Networks, role.Agents,
			role.APIServers,
		},
		Plan: deciding(planGateway),
		Report: func(s role.Snapshot, p role.Plan, o role.Outcome) role.Report {
			return reportGateway(s, PlanOf(p), o)
		},
		Recall: recallGateway,
	}
}

func planGateway(s role.Snapshot) (Plan, error) {
	var down role.Healths
	s.Health, down = s.Health.Recalling(s.Memory.Down)
	m, err := ofGateway(s)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Plan: role.Plan{State: dataplane.State{}}, Mesh: m, FreshBoot: freshBoot(s)}
	if !s.Standing.Active || m.Membership.Leaving() {
		return p, nil
	}
	p.Traffic = direct(m)
	p.Again = p.Traffic.again
	p.againForIncumbents()
	cabling := cable.Cabling{
		Local: m.Offer.Local, Peers: p.Held, Barred: p.Barred, Siblings: p.Siblings, Detours: p.Detours,
		Globalnet: m.Offer.Translates.Elements, Clusters: m.Accepted.clusters(), FormerRoutes: s.FormerRoutes,
		Carried: m.Membership.Carried(), Here: m.Membership.Self.Pods,
	}
	if p.State, p.links, err = cable.Plan(cabling); err != nil {
		return Plan{}, err
	}
	p.members = groupMembers(p.State)
	if s.Facts.NoNextHopObjects {
		p.State = p.State.WithoutNexthops()
	}
	p.Probes = p.probes()
	maps.DeleteFunc(down, func(name string, _ role.Health) bool { return !p.Probes.Targets[name].Fast })
	p.leaveToPings(down)
	p.Probes.Known = down
	return p, nil
}

// probes returns the addresses to ping: the other end of both cables of each pair that is changing
// its cable, and the health check IP of each gateway. If that does not answer any more, the other
// end of the cable is pinged, too, unless the cable encrypts: see silent. A cable without health
// checks is pinged until the gateways have agreed on keys, as WireGuard does so only if it has
// something to send. The other gateways of this cluster that may get packets are pinged all the
// time, as the API server may not answer when they get some; not often, as each ping costs, and
// only a second failure makes them get any.
func (p Plan) probes() role.Probes {
	m := p.Mesh
	hc := m.Membership.Submariner.Spec.HealthCheck()
	out := role.Probes{
		Interval: hc.Interval(),
		MaxLost:  int(hc.MaxPacketLossCount),
		Targets:  map[string]role.Target{},
		Echo:     dataplane.EchoPort,
	}
	for _, siblings := range p.Siblings {
		for _, n := range siblings {
			out.Targets[role.SiblingProbe(n)] = role.Target{
				IP:   cable.VTEPOf(dataplane.IntraVTEPNet, n.IP),
				From: cable.VTEPOf(dataplane.IntraVTEPNet, m.Membership.Self.IP),
			}
		}
	}
	from := m.Offer.Local.PodIP
	for i, c := range p.Held {
		if p.leaves(c) {
			continue
		}
		if c.Idle {
			t := role.Target{IP: p.links[i].IP, From: p.links[i].From, Eager: true}
			if turn := p.turn(c); turn.LeadsTo(using(c)) {
				t.First = turn.ProbeAfter
			}
			out.Targets[role.ProbeName(c.Name, c.Device())] = t
			continue
		}
		if p.several[c.Cluster] {
			out.Targets[role.ProbeName(c.Name, c.Device())] = fastTarget(c, p.links[i], c.MTU(m.Offer.Local))
			if c.HealthIP.IsValid() && from.IsValid() && hc.Enabled {
				out.Targets[c.Name] = role.Target{IP: c.HealthIP, From: from}
			}
			continue
		}
		if c.Silent || m.Snapshot.Health.Fails(c) && !c.Driver.Properties().Encrypts {
			out.Targets[role.ProbeName(c.Name, c.Device())] = role.Target{
				IP:    p.links[i].IP,
				From:  p.links[i].From,
				Eager: c.Silent,
			}
		}
		state, stateful := m.Snapshot.StateOf(p.links[i])
		switch {
		case c.HealthIP.IsValid() && from.IsValid() && hc.Enabled:
			out.Targets[c.Name] = role.Target{IP: c.HealthIP, From: from}
		case stateful && state.Handshake.IsZero():
			out.Targets[role.ProbeName(c.Name, c.Device())] = role.Target{IP: p.links[i].IP, From: p.links[i].From}
		}
	}
	return out
}

// leaveToPings has pings decide whether a cable is up again, whatever has found that it is down, if
// the other gateway's version may be older than echoes: it announces no siblings, as newer ones do.
func (p Plan) leaveToPings(down role.Healths) {
	for _, c := range p.Held {
		name := role.ProbeName(c.Name, c.Device())
		if h, known := down[name]; known && !c.TellsSiblings {
			h.By = role.ByPing
			down[name] = h
		}
	}
}

// fastTarget returns the other end of a cable to a cluster to which there are several ways, given
// the link and the MTU of the cable.
func fastTarget(c cable.Cable, l cable.Link, mtu int) role.Target {
	t := role.Target{
		IP:   l.IP,
		From: l.From,
		Who:  fmt.Sprintf("gateway %s of cluster %s", c.Host, c.Cluster),
		Fast: true,
	}
	if l.MAC != "" {
		t.Echo = role.Echo{Device: l.Device, MAC: l.MAC, MTU: mtu}
	}
	return t
}

func reportGateway(s role.Snapshot, p Plan, o role.Outcome) role.Report {
	var r role.Report
	old := role.Find[*submarinerv1.Gateway](s, s.Node)
	o.Health, _ = o.Health.Recalling(p.Probes.Known)
	g := gatewayReport(s, p, o, old)
	if m := p.Mesh; m != nil {
		if s.Standing.Active && !m.Membership.Leaving() {
			fit(&g.Status, p.connections(o))
			publishEndpoint(&r, m)
		}
		if s.Standing.Speaker && !m.Membership.Leaving() {
			publishCluster(&r, m)
			r.Status, r.Update = policyReports(s, o.Now)
			describe(&r, m.Membership.Submariner)
			unlabel(&r, s)
		}
		prune(&r, m)
	}
	g.SetReportedAt(o.Now)
	if old == nil || heartbeatDue(old, o.Now) {
		r.Apply = append(r.Apply, g)
		return r
	}
	own, others := gatewayChanges(old.Status, g.Status)
	apply(&r, g, own, others)
	return r
}

// describe writes what upstream's tools read of the status of the Submariner, unless it is there.
// Nobody else writes it after join. The network plugin is not known here.
func describe(r *role.Report, sub *v1alpha1.Submariner) {
	want := sub.Status
	want.ClusterID = sub.Spec.ClusterID
	want.ClusterCIDR = sub.Spec.ClusterCIDR
	want.ServiceCIDR = sub.Spec.ServiceCIDR
	want.GlobalCIDR = sub.Spec.GlobalCIDR
	want.NatEnabled = sub.Spec.NatEnabled
	want.Version = sub.Spec.Version
	if reflect.DeepEqual(want, sub.Status) {
		return
	}
	want.NetworkPlugin = ""
	want.Conditions = nil // not ours
	r.Status = append(
		r.Status,
		&v1alpha1.Submariner{
			ObjectMeta: metav1.ObjectMeta{Name: sub.Name, Namespace: sub.Namespace, UID: sub.UID},
			Status:     want,
		},
	)
}

// unlabel restores the objects of this cluster that somebody has labelled as copies. An object
// that is written anyway is restored in the next pass.
func unlabel(r *role.Report, s role.Snapshot) {
	for _, o := range s.Mislabelled {
		if !slices.ContainsFunc(r.Apply, func(a role.Object) bool {
			return reflect.TypeOf(a) == reflect.TypeOf(o) && a.GetName() == o.GetName()
		}) {
			r.Update = append(r.Update, o)
		}
	}
}

// gatewayReport returns the Gateway of this node without its connections.
func gatewayReport(s role.Snapshot, p Plan, o role.Outcome, old *submarinerv1.Gateway) *submarinerv1.Gateway {
	g := &submarinerv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: s.Node, Namespace: submarinerv1.OperatorNamespace},
		Status: submarinerv1.GatewayStatus{
			Version:     version.Version,
			BootID:      s.BootID,
			HAStatus:    submarinerv1.HAStatusPassive,
			Connections: []submarinerv1.Connection{},
		},
	}
	if s.Standing.Active && !s.Standing.Standby() {
		g.Status.HAStatus = submarinerv1.HAStatusActive
	}
	if err := o.Failure(); err != nil {
		g.Status.StatusFailure = role.Clip(err.Error())
	}
	var was []metav1.Condition
	if old != nil {
		was = old.Status.Conditions
	}
	g.Status.Conditions = conditions(was, p, o)
	g.Status.Conditions = append(g.Status.Conditions, shareCondition(s, was, o.Now)...)
	if m := p.Mesh; m != nil {
		g.Status.Conditions = append(g.Status.Conditions, m.Offer.condition(was, o.Now))
		if s.KeysErr != nil {
			g.Status.Conditions = append(g.Status.Conditions,
				role.Condition(was, role.ConditionPreSharedKey, false, reasonMissing, s.KeysErr.Error(), o.Now))
		}
		g.Status.Conditions = append(g.Status.Conditions, egressConditions(s, m, was, o.Now)...)
		g.Status.Conditions = append(g.Status.Conditions, networksCondition(s, m.Membership.Submariner, was, o.Now)...)
		g.Status.LocalEndpoint = m.Offer.endpoint().Spec
		if m.Offer.Translates.Health.IsValid() {
			metav1.SetMetaDataAnnotation(&g.ObjectMeta, submarinerv1.GatewayGlobalIPAnnotation,
				m.Offer.Translates.Health.String())
		}
		g.Status.Programmed = p.programmed(o, old)
		m.Offer.reportShare(s, g)
	} else {
		g.Status.LocalEndpoint, g.Status.Connections = unplanned(s, old)
		if old != nil {
			g.Status.Weight = old.Status.Weight
			g.Status.Drain = old.Status.Drain
			g.Status.DrainingSince = old.Status.DrainingSince
			g.Status.BootID = old.Status.BootID // of the connections
			g.Status.ConnectionsOmitted = old.Status.ConnectionsOmitted
			g.Status.ConnectionsOmittedDown = old.Status.ConnectionsOmittedDown
		}
	}
	return g
}

// unplanned returns what a gateway reports while the snapshot has a mistake: what it
// reported before, since its kernel holds the previous plan.
func unplanned(s role.Snapshot, old *submarinerv1.Gateway) (submarinerv1.EndpointSpec, []submarinerv1.Connection) {
	if old != nil && old.Status.LocalEndpoint.ClusterID != "" {
		return old.Status.LocalEndpoint, slices.Clone(old.Status.Connections)
	}
	e := submarinerv1.EndpointSpec{Hostname: s.Node, Subnets: []string{}}
	for _, sub := range role.List[*v1alpha1.Submariner](s) {
		e.ClusterID = sub.Spec.ClusterID
	}
	return e, []submarinerv1.Connection{}
}

// heartbeatDue reports whether a gateway reports again although nothing has changed. Its clock may
// have been set back since its last report.
func heartbeatDue(old *submarinerv1.Gateway, now time.Time) bool {
	at, ok := old.ReportedAt()
	age := now.Sub(at)
	return !ok || age < 0 || age >= role.Heartbeat
}

// prune deletes what is left of gateways that are gone. The Endpoint of a sibling stays for as long
// as the sibling is among Standing.Gateways, and its node is a gateway node. If another gateway has
// taken its role, it is the Endpoint of a standby. So is the one of a node that is no gateway node
// any more, which stays until the node has other ways: until then, its own pods use its cables, and
// other clusters accept packets only through the cables of Endpoints.
func prune(r *role.Report, m *Mesh) {
	s := m.Snapshot
	own := m.Offer.endpoint().Name
	leaving := m.Membership.Leaving()
	for _, e := range m.Membership.Endpoints {
		mine := s.Standing.Active && (e.Name == own || e.Spec.Hostname == s.Node)
		lost := !slices.Contains(s.Standing.Gateways, e.Spec.Hostname) ||
			!role.IsGatewayNode(role.Find[*corev1.Node](s, e.Spec.Hostname))
		gone := s.Standing.Speaker && !mine && lost
		outdated := mine && e.Name != own // the node had another address
		switch {
		case outdated, leaving && (mine || s.Standing.Speaker):
			r.Delete = append(r.Delete, e)
		case gone && handsOver(s, e):
			announceLeaving(r, e)
		case gone:
			r.Delete = append(r.Delete, e)
		case slices.Contains(s.Standing.Replaced, e.Spec.Hostname):
			r.Apply = append(r.Apply, members.AsStandby(e))
		}
	}
	if !s.Standing.Speaker {
		return
	}
	if leaving {
		if c := m.Membership.Cluster; c != nil {
			r.Delete = append(r.Delete, c)
		}
		return
	}
	forget(r, m)
}

// forget deletes the Gateways of gateways that are dead, and whose Endpoints are gone. From its
// Gateway, the next agent of a node learns which cables the kernel has used all the time. Other
// clusters have these for as long as the Endpoint is there.
func forget(r *role.Report, m *Mesh) {
	for _, g := range role.List[*submarinerv1.Gateway](m.Snapshot) {
		stays := slices.ContainsFunc(m.Membership.Endpoints, func(e *submarinerv1.Endpoint) bool {
			return e.Spec.Hostname == g.Name && !slices.Contains(r.Delete, role.Object(e))
		})
		if g.Name != m.Snapshot.Node && !stays && !m.Snapshot.Reporting(g.Name) {
			r.Delete = append(r.Delete, g)
		}
	}
}
