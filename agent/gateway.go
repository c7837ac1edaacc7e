package agent

import (
	"maps"
	"reflect"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/version"
)

const (
	heartbeat = 5 * time.Second  // how often a Gateway is written at least (upstream)
	deadAfter = 15 * time.Second // a Gateway not written for so long is dead (upstream)
)

// Gateway is the role of a gateway pod: the cables, if it is the active one, and
// the cluster's Cluster and Endpoint objects.
type Gateway struct{}

// Name implements Role.
func (Gateway) Name() string { return "gateway" }

// Owner implements Role.
func (Gateway) Owner() dataplane.Owner { return dataplane.GatewayOwner }

// Watches implements Role.
func (Gateway) Watches() []client.Object { return kinds() }

// Plan implements Role.
func (Gateway) Plan(s Snapshot) (Plan, error) {
	v, err := newView(s)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{State: dataplane.State{}, view: v}
	if !s.Leader || v.leaving() {
		return p, nil
	}
	p.cables, p.Using = v.cablings()
	if p.State, p.links, err = cable.Plan(cable.Cabling{Local: v.local(), Peers: p.cables}); err != nil {
		return Plan{}, err
	}
	p.Probes = v.probes(p)
	return p, nil
}

// probes says which addresses to ping how often: of every pair that is changing its
// cable the far end of either cable, and of every gateway its health check IP.
func (v *view) probes(plan Plan) Probes {
	hc := v.sub.Spec.ConnectionHealthCheck
	p := Probes{Interval: time.Second, MaxLost: 5, Targets: map[string]Target{}}
	if hc != nil && hc.IntervalSeconds > 0 {
		p.Interval = time.Duration(hc.IntervalSeconds) * time.Second
	}
	if hc != nil && hc.MaxPacketLossCount > 0 {
		p.MaxLost = int(hc.MaxPacketLossCount)
	}
	from := v.local().PodIP
	for i, c := range plan.cables {
		if c.Idle {
			p.Targets[probeName(c.Name, c.Device())] = Target{IP: plan.links[i].IP, From: plan.links[i].From, Eager: true}
			continue
		}
		if c.HealthIP.IsValid() && from.IsValid() && (hc == nil || hc.Enabled) {
			p.Targets[c.Name] = Target{IP: c.HealthIP, From: from}
		}
	}
	return p
}

// Report implements Role.
func (Gateway) Report(s Snapshot, p Plan, o Outcome) Report {
	var r Report
	old := find[*submarinerv1.Gateway](s, s.Node)
	g := &submarinerv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: s.Node, Namespace: submarinerv1.OperatorNamespace},
		Status: submarinerv1.GatewayStatus{
			Version: version.Version, HAStatus: submarinerv1.HAStatusPassive, Connections: []submarinerv1.Connection{},
			LocalEndpoint: submarinerv1.EndpointSpec{Hostname: s.Node, Subnets: []string{}},
		},
	}
	if s.Leader {
		g.Status.HAStatus = submarinerv1.HAStatusActive
	}
	if o.Err != nil {
		g.Status.StatusFailure = clip(o.Err.Error())
	}
	var was []metav1.Condition
	if old != nil {
		was = old.Status.Conditions
	}
	g.Status.Conditions = conditions(was, p, o)
	if v := p.view; v != nil {
		g.Status.Conditions = append(g.Status.Conditions, v.configCondition(was, o.Now))
		if k := s.Keys; k != nil && len(k.PSK) == 0 {
			g.Status.Conditions = append(g.Status.Conditions, condition(was, ConditionPreSharedKey, false, reasonMissing, noPSK(v.sub), o.Now))
		}
		g.Status.LocalEndpoint = v.endpoint().Spec
		if s.Leader && !v.leaving() {
			g.Status.Connections = v.connections(p, o)
			r.publish(s, v)
			r.Status, r.Update = policyReports(s, o.Now)
		}
		r.prune(s, v, o.Now)
	}
	if old == nil || gatewayChanged(old.Status, g.Status) || o.Now.Sub(written(old)) >= heartbeat {
		g.Annotations = map[string]string{submarinerv1.TimestampAnnotation: strconv.FormatInt(o.Now.Unix(), 10)}
		r.Apply = append(r.Apply, g)
	}
	return r
}

// gatewayChanged compares without what changes all the time: round trip times.
func gatewayChanged(a, b submarinerv1.GatewayStatus) bool {
	a.Connections, b.Connections = withoutRTT(a.Connections), withoutRTT(b.Connections)
	return !reflect.DeepEqual(a, b)
}

func withoutRTT(cs []submarinerv1.Connection) []submarinerv1.Connection {
	out := make([]submarinerv1.Connection, len(cs))
	for i, c := range cs {
		c.LatencyRTT = nil
		out[i] = c
	}
	return out
}

// written is when a Gateway was last written; long ago if it does not say.
func written(g *submarinerv1.Gateway) time.Time {
	sec, err := strconv.ParseInt(g.Annotations[submarinerv1.TimestampAnnotation], 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(sec, 0)
}

// endpoint is the Endpoint of this node as a gateway.
func (v *view) endpoint() *submarinerv1.Endpoint {
	l := v.local()
	e := &submarinerv1.Endpoint{
		ObjectMeta: metav1.ObjectMeta{Name: l.Cluster + "-" + l.Name, Namespace: submarinerv1.OperatorNamespace},
		Spec: submarinerv1.EndpointSpec{
			ClusterID: l.Cluster, CableName: l.Name, Hostname: l.Host, PrivateIP: l.PrivateIP.String(),
			NATEnabled: l.NAT, Backend: v.driver.Name(), Subnets: []string{},
			BackendConfig: map[string]string{
				submarinerv1.BackendNATDiscoveryPort: strconv.Itoa(dataplane.NATDiscoveryPort),
			},
		},
	}
	var offered []string
	for _, d := range v.offer {
		config, err := d.Advertise(l)
		if err != nil {
			continue // Lacks says why, and this cluster's own connections do
		}
		offered = append(offered, d.Name())
		maps.Copy(e.Spec.BackendConfig, config)
	}
	e.Spec.BackendConfig[submarinerv1.BackendDrivers] = strings.Join(offered, ",")
	for _, n := range l.Subnets {
		e.Spec.Subnets = append(e.Spec.Subnets, n.String())
	}
	if l.PublicIP.IsValid() {
		e.Spec.PublicIP = l.PublicIP.String()
	}
	if l.HealthIP.IsValid() {
		e.Spec.HealthCheckIP = l.HealthIP.String()
	}
	return e
}

// publish makes the cluster and its active gateway known.
func (r *Report) publish(s Snapshot, v *view) {
	e := v.endpoint()
	if old := find[*submarinerv1.Endpoint](s, e.Name); old == nil || !reflect.DeepEqual(old.Spec, e.Spec) {
		r.Apply = append(r.Apply, e)
	}
	c := v.cluster()
	if old := find[*submarinerv1.Cluster](s, c.Name); old == nil || !reflect.DeepEqual(old.Spec, c.Spec) || !labelled(old, c) ||
		old.Annotations[submarinerv1.CableConfigAnnotation] != c.Annotations[submarinerv1.CableConfigAnnotation] {
		r.Apply = append(r.Apply, c)
	}
}

// cluster is the Cluster of this cluster.
func (v *view) cluster() *submarinerv1.Cluster {
	c := &submarinerv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: v.sub.Spec.ClusterID, Namespace: submarinerv1.OperatorNamespace},
		Spec: submarinerv1.ClusterSpec{
			ClusterID: v.sub.Spec.ClusterID, ColorCodes: []string{"blue"}, ClusterSets: v.sub.Spec.ClusterSets,
			ServiceCIDR: []string{}, ClusterCIDR: []string{}, GlobalCIDR: []string{}, PublicKey: v.publicKey(),
		},
	}
	for _, n := range v.own.Services {
		c.Spec.ServiceCIDR = append(c.Spec.ServiceCIDR, n.String())
	}
	for _, n := range v.own.Pods {
		c.Spec.ClusterCIDR = append(c.Spec.ClusterCIDR, n.String())
	}
	if text := cable.FormatConfig(v.settings); text != "" {
		c.Annotations = map[string]string{submarinerv1.CableConfigAnnotation: text}
	}
	said := v.sub.Annotations[v1alpha1.ClusterLabelsAnnotation]
	c.Labels = clusterLabels(said, find[*submarinerv1.Cluster](v.snap, c.Name))
	if said != "" {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, v1alpha1.ClusterLabelsAnnotation, said)
	}
	return c
}

// publicKey is the cluster's: the other half of the private key that this gateway
// works with, so that others never hear of a key before it is in use; what join says
// where there is none.
func (v *view) publicKey() string {
	if r := v.snap.Keys; r != nil && len(r.Private.Bytes()) > 0 {
		return r.Private.Public().String()
	}
	return v.sub.Annotations[v1alpha1.PublicKeyAnnotation]
}

// prune removes what dead gateways of this cluster left: the endpoints of others,
// since one gateway is active at a time, and Gateways that nobody writes any more.
func (r *Report) prune(s Snapshot, v *view, now time.Time) {
	if !s.Leader {
		return
	}
	own := v.endpoint().Name
	for _, e := range List[*submarinerv1.Endpoint](s) {
		mine := e.Spec.ClusterID == v.sub.Spec.ClusterID && e.Labels[submarinerv1.ClusterIDLabel] == ""
		if mine && (e.Name != own || v.leaving()) {
			r.Delete = append(r.Delete, e)
		}
	}
	if v.leaving() {
		if c := find[*submarinerv1.Cluster](s, v.sub.Spec.ClusterID); c != nil {
			r.Delete = append(r.Delete, c)
		}
		return
	}
	for _, g := range List[*submarinerv1.Gateway](s) {
		if g.Name != s.Node && now.Sub(written(g)) >= deadAfter {
			r.Delete = append(r.Delete, g)
		}
	}
}
