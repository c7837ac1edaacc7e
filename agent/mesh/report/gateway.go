// Package report says what a gateway and a route agent write to the API server, from a plan and its
// outcome: the Gateway or RouteAgent of the node and, as far as the gateway publishes them, the
// Endpoints, the Cluster and the policies of its cluster. It decides nothing: see package mesh.
package report

import (
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/version"
)

// Gateway returns what a gateway reports of its plan: its own Gateway and, as far as it speaks for
// the cluster, the cluster's Endpoints, Cluster and policies.
func Gateway(s role.Snapshot, p mesh.Plan, o role.Outcome) role.Report {
	var r role.Report
	old := role.Find[*submarinerv1.Gateway](s, s.Node)
	o.Health, _ = o.Health.Recalling(p.Probes.Known)
	g := gatewayReport(s, p, o, old)
	if m := p.Mesh; m != nil {
		if s.Standing.Active && !m.Membership.Leaving() {
			setFittingConnections(&g.Status, Connections(p, o))
			publishEndpoint(&r, m)
		}
		if s.Standing.Speaker && !m.Membership.Leaving() {
			publishCluster(&r, m)
			r.Status, r.Update = policyReports(s, o.Now)
			setUpstreamStatus(&r, m.Membership.Submariner)
			unlabel(&r, s)
		}
		deleteGoneEndpoints(&r, m)
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

// setUpstreamStatus writes what upstream's tools read of the status of the Submariner, unless it is
// there. Nobody else writes it after join. The network plugin is not known here.
func setUpstreamStatus(r *role.Report, sub *v1alpha1.Submariner) {
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
func gatewayReport(s role.Snapshot, p mesh.Plan, o role.Outcome, old *submarinerv1.Gateway) *submarinerv1.Gateway {
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
	g.Status.Conditions = Conditions(was, p, o)
	g.Status.Conditions = append(g.Status.Conditions, shareCondition(s, was, o.Now)...)
	if m := p.Mesh; m != nil {
		g.Status.Conditions = append(g.Status.Conditions, settingsCondition(m.Offer, was, o.Now))
		if s.KeysErr != nil {
			g.Status.Conditions = append(g.Status.Conditions,
				role.Condition(was, role.ConditionPreSharedKey, false, reasonMissing, s.KeysErr.Error(), o.Now))
		}
		g.Status.Conditions = append(g.Status.Conditions, egressConditions(s, m, was, o.Now)...)
		g.Status.Conditions = append(g.Status.Conditions, networksCondition(s, m.Membership, was, o.Now)...)
		g.Status.LocalEndpoint = Endpoint(m.Offer).Spec
		if m.Offer.Translates.Health.IsValid() {
			metav1.SetMetaDataAnnotation(&g.ObjectMeta, submarinerv1.GatewayGlobalIPAnnotation,
				m.Offer.Translates.Health.String())
		}
		g.Status.Programmed = programmedVersions(p, o, old)
		reportShare(m.Offer, s, g)
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
