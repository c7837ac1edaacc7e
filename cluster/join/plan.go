package join

import (
	"cmp"
	"encoding/base64"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/cluster"
	"subctl/cluster/networks"
	"subctl/internal/prefix"
	"subctl/internal/version"
	"subctl/policy/impact"
)

// Plan describes a join.
type Plan struct {
	// Submariner describes how the cluster joins. All other objects are rendered from it
	// (see cluster.Render). It lacks the public key, which is created when joining.
	Submariner *v1alpha1.Submariner
	// Global is the global network in Submariner; the zero Prefix if it has none.
	Global netip.Prefix
	// UID distinguishes this cluster from other clusters that claim its ID.
	UID string
	// Platform is what the objects depend on besides Submariner.
	Platform cluster.Platform
	// Reservation determines how many objects the cluster gets on the broker.
	Reservation broker.Reservation
	// Gateways are the nodes to label as gateways, sorted.
	Gateways []string
	// OthersNamespace reports whether the namespace existed before the first join.
	OthersNamespace bool
	// Before is the Submariner that the cluster has now; nil if it has not joined.
	Before *v1alpha1.Submariner
	// Changes are the fields of Before.Spec that change, sorted. Affected are the other
	// clusters that the changes affect, grouped by their cable before and after where it
	// differs.
	Changes  []Change
	Affected []string
	// Impact is what the changes mean for the pairs of this cluster.
	Impact impact.Change
	// Grant is the grant of the cluster from now on, without its key and its serial. Granted are
	// the differences from the grant that it has, sorted.
	Grant   trust.Grant
	Granted []Change
	// LastGrant is the grant that the cluster has now; zero if it has none.
	LastGrant trust.Grant
	// Trust holds the keys and the grant with which the cluster signs and verifies now; nil if it
	// has not joined.
	Trust *cluster.Trust
	// Left is the grant with which a cluster with this ID has left; zero if none has.
	Left trust.Grant
	// Removed is the time when the administrator last revoked the cluster, or removed it from a
	// clusterset that it joins, in milliseconds since 1970; 0 if never.
	Removed int64
	// NewKeys reports whether the cluster gets a new key pair and a new seed: it is no member, was
	// revoked, or has left, so that somebody may have a copy of its old ones.
	NewKeys bool
	// Unreachable are the networks of this cluster of which other clusters can no longer reach
	// all addresses, each with its replacement.
	Unreachable []string
	// Cables are the pairs of this cluster and another one with a gateway whose cable changes.
	Cables []impact.CableChange
	// Present are the other members that have a gateway, sorted.
	Present []string
	// LeftOut reports whether the cluster gets no service discovery because the broker leaves it
	// out.
	LeftOut bool
	// FreeDNS reports whether the user asks a cluster that has joined for --dns=false: see
	// undoesDNS.
	FreeDNS bool
	// Network describes the source of the cluster's global network; nil if the broker has no
	// globalnet, or if an invitation has reserved the network.
	Network *Network
	// Found are the discovered networks of the cluster.
	Found networks.Discovered
	// Warnings are for the user to read before the cluster joins.
	Warnings []string
}

// MakePlan returns how to join the cluster of f to the broker of b with the join file, or an
// error with all mistakes. It is a pure function.
func MakePlan(o Options, file *broker.JoinFile, f *Facts, b *BrokerFacts) (*Plan, error) {
	o = o.With(f.Submariner).from(b.Broker)
	used := *file
	used.BrokerURL = o.Address(file, f.Submariner)
	used.TLSServerName = o.ServerName(file, f.Submariner)
	r := request{Options: o, file: &used, listed: file.BrokerURL, listedName: file.TLSServerName, member: f, broker: b}
	if b.Broker != nil {
		r.readGlobalnet()
	}
	warnings, err := r.check()
	if err != nil {
		return nil, err
	}
	p := &Plan{
		UID: f.UID, Found: f.Network, Warnings: warnings, Present: r.activeMembers(), Before: f.Submariner,
		OthersNamespace: f.Namespace != nil && !cluster.IsOurs(f.Namespace.Labels),
	}
	p.Gateways, _, _ = r.gateways() // the checks have passed
	p.Platform = f.Platform
	p.Platform.BrokenGateways = brokenGateways(f.Nodes, p.Gateways)
	p.Reservation = r.reservation()
	pods, _, _ := r.podNetworks()
	services, _, _ := r.serviceNetworks()
	p.Submariner = r.submariner(pods, services)
	p.Global = r.global
	p.Grant = r.grant()
	p.Trust = f.Trust
	p.Left = r.leaveGrant()
	p.Removed = r.lastRemoval()
	p.NewKeys = b.Holder == nil || r.lastRevocation("") > 0 || p.Left.Serial > 0
	p.Network = r.network()
	p.LeftOut = !o.ServiceDiscovery && o.brokers("service-discovery")
	p.LastGrant, p.Granted = r.lastGrant(), r.grantChanges(p.Grant)
	p.FreeDNS = p.Before != nil && o.specifies("dns") && !o.DNS
	if p.Before != nil {
		p.Changes = changes(p.Before.Spec, p.Submariner.Spec)
		p.Impact, p.Affected = r.impact(p.Before, p.Submariner, p.Changes)
		p.Warnings = append(p.Warnings, p.Impact.Warnings()...)
		p.Cables = slices.DeleteFunc(slices.Clone(p.Impact.Cables), func(x impact.CableChange) bool {
			return x.New || x.Then.Err != nil || !slices.Contains(p.Present, x.Other(p.Submariner.Spec.ClusterID))
		})
		if len(p.Affected) > 0 {
			p.Unreachable = r.unreachable(p.Before.Spec, p.Submariner.Spec)
		}
	}
	return p, nil
}

// reservation returns what the broker reserves for the cluster: an Endpoint for each gateway, and
// as many objects of the other kinds as the cluster has, such as cable policies.
func (r request) reservation() broker.Reservation {
	out := broker.Reservation{
		Sets:      r.Sets(),
		ToPublish: maps.Clone(r.member.Shared),
		Grant:     r.grant(),
		Kinds:     exchange.KindsFrom(r.broker.Broker.Spec.PoliciesFrom),
	}
	if out.ToPublish == nil {
		out.ToPublish = map[string]int{}
	}
	for _, k := range out.Kinds {
		if k.Named != nil && k.Named.PerGateway {
			out.ToPublish[k.Resource] = r.gatewayCount()
		}
	}
	return out
}

// Refusal returns an error if pairs of clusters lose their cable or its encryption, or addresses
// of this cluster can no longer be reached.
func (p *Plan) Refusal() error {
	errs := []error{p.Impact.Refusal()}
	for _, text := range p.Unreachable {
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

// ChangesText returns the changes of the settings with which the cluster has joined before,
// and the other clusters that they affect, on lines of their own; empty if nothing changes.
func (p *Plan) ChangesText() string {
	if len(p.Changes) == 0 {
		return ""
	}
	lines := []string{"the settings of this cluster change:"}
	for _, c := range p.Changes {
		lines = append(lines, "  "+c.String())
	}
	affected := "affected clusters: none"
	if len(p.Affected) > 0 {
		affected = "affected clusters: " + strings.Join(p.Affected, ", ")
	}
	return strings.Join(append(lines, affected), "\n")
}

// submariner returns the Submariner object of the cluster: the object of the last join, with
// the options.
func (r request) submariner(pods, services []netip.Prefix) *v1alpha1.Submariner {
	before := r.lastSubmariner()
	spec := before.Spec.WithoutEffect()
	r.brokerFields(&spec)
	r.cableFields(&spec)
	spec.ClusterCIDR = prefix.Format(pods)
	spec.ServiceCIDR = prefix.Format(services)
	spec.GlobalCIDR = ""
	if r.global.IsValid() { // checkGlobalnet has passed
		spec.GlobalCIDR = r.global.String()
	}
	spec.ClusterID = r.ClusterID
	spec.ClusterLabels = r.Labels
	spec.ClusterSets = r.Sets()
	spec.ColorCodes = "blue" // upstream's tools expect it
	spec.ConnectionHealthCheck = &v1alpha1.HealthCheckSpec{
		Enabled: r.HealthCheck, IntervalSeconds: r.HealthCheckInterval, MaxPacketLossCount: r.HealthCheckMaxLoss,
	}
	spec.MultiActiveGatewayEnabled = r.MultiActiveGateway
	spec.Gateways = r.keptGateways()
	spec.ServiceDiscoveryEnabled = r.ServiceDiscovery
	if spec.ServiceDiscovery == nil {
		spec.ServiceDiscovery = &v1alpha1.ServiceDiscoverySpec{} // see settings
	}
	r.dnsFields(&spec)
	spec.ServiceDiscovery.ExportNamespaces = r.exportNamespaces()
	if len(r.GatewayNodes) > 0 {
		spec.GatewayNodes = slices.Compact(slices.Sorted(slices.Values(r.GatewayNodes)))
	}
	spec.ImageOverrides = r.images(spec.ImageOverrides)
	spec.Namespace = cluster.Namespace
	spec.Version = version.Version
	sub := &v1alpha1.Submariner{
		ObjectMeta: metav1.ObjectMeta{
			Name:        v1alpha1.SubmarinerName,
			Namespace:   cluster.Namespace,
			Annotations: map[string]string{},
		},
		Spec: spec,
	}
	if discovered := r.discovered(pods, services); len(discovered) > 0 {
		sub.Annotations[v1alpha1.DiscoveredAnnotation] = strings.Join(discovered, ",")
	}
	if withoutScheme(r.file.BrokerURL) != withoutScheme(r.listed) {
		sub.Annotations[insteadOfAnnotation] = withoutScheme(r.listed)
	}
	if r.file.TLSServerName != r.listedName {
		sub.Annotations[insteadOfNameAnnotation] = r.listedName
	}
	return sub
}

// brokerFields sets the fields about the broker.
func (r request) brokerFields(spec *v1alpha1.SubmarinerSpec) {
	spec.BrokerK8sApiServer = withoutScheme(r.file.BrokerURL)
	spec.BrokerK8sCA = base64.StdEncoding.EncodeToString(r.file.CA)
	spec.BrokerK8sInsecure = r.InsecureBroker
	spec.BrokerK8sTLSServerName = r.file.TLSServerName
	r.proxyFields(spec)
	spec.BrokerK8sSecret = cmp.Or(spec.BrokerK8sSecret, cluster.BrokerSecret)
	spec.BrokerK8sRemoteNamespace = r.file.BaseNamespace()
	spec.HaltOnCertificateError = true
	spec.PoliciesFrom = r.broker.Broker.Spec.PoliciesFrom
}

// cableFields sets the fields about cables.
func (r request) cableFields(spec *v1alpha1.SubmarinerSpec) {
	spec.CeIPSecDebug = r.IPsecDebug
	spec.CeIPSecForceUDPEncaps = r.ForceUDPEncaps
	spec.CeIPSecNATTPort = r.NATTPort
	spec.CeIPSecPreferredServer = r.PreferredServer
	spec.CeIPSecPSKSecret = cmp.Or(spec.CeIPSecPSKSecret, cluster.PSKSecret)
	spec.CableDriver = r.driver()
	spec.CableDrivers = r.CableDrivers
	spec.CombinedCableDrivers = r.CombinedCableDrivers
	if ref := r.configRef(); refText(ref) != refText(spec.CableDriverCustomConfig) {
		spec.CableDriverCustomConfig = ref
	}
	spec.Encryption = r.encryption()
	spec.NatEnabled = r.NAT
}

// images returns the images of the components: the image that the user specifies, or else
// those of the last join.
func (r request) images(before map[string]string) map[string]string {
	out := maps.Clone(before)
	if r.Image != "" && out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, cluster.ImageOverrides(r.Image))
	return out
}

func withoutScheme(address string) string {
	_, rest, ok := strings.Cut(address, "://")
	if !ok {
		rest = address
	}
	return strings.TrimRight(rest, "/")
}

// activeMembers returns the other clusters that have a gateway and a grant. Whatever else is on the
// broker, no cluster connects to it.
func (r request) activeMembers() []string {
	granted := map[string]bool{}
	for _, c := range r.broker.clusters() {
		g, err := r.file.Administrator.Grant(c.Annotations[submarinerv1.GrantAnnotation])
		granted[c.Spec.ClusterID] = granted[c.Spec.ClusterID] || err == nil && g.Cluster == c.Spec.ClusterID
	}
	var out []string
	for _, e := range r.broker.endpoints() {
		if r.isOther(e.Spec.ClusterID) && granted[e.Spec.ClusterID] {
			out = append(out, e.Spec.ClusterID)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
