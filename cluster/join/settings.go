package join

import (
	"fmt"
	"slices"
	"strings"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cluster"
)

// setting is an option that a Submariner stores.
type setting struct {
	flag  string // its flag, without dashes
	field string // its field of Submariner.spec, for messages
	// read sets the option to the value that a Submariner stores. It leaves the default where
	// the Submariner stores no value.
	read func(*Options, *v1alpha1.Submariner)
}

// settings are the options that joining again leaves as they are, unless the user specifies
// them. The remaining options say what join does (label nodes, contact the broker), or have a
// function of their own (Encryption).
var settings = []setting{
	{"clusterid", "clusterID", func(o *Options, s *v1alpha1.Submariner) { o.ClusterID = s.Spec.ClusterID }},
	{
		"clustercidr",
		"clusterCIDR",
		func(o *Options, s *v1alpha1.Submariner) { o.ClusterCIDRs = list(s.Spec.ClusterCIDR) },
	},
	{
		"servicecidr",
		"serviceCIDR",
		func(o *Options, s *v1alpha1.Submariner) { o.ServiceCIDRs = list(s.Spec.ServiceCIDR) },
	},
	{"globalnet", "globalCIDR", func(o *Options, s *v1alpha1.Submariner) {
		o.Globalnet = s.Spec.GlobalCIDR != "" || o.specifies("globalnet-cidr") || o.specifies("globalnet-cluster-size")
	}},
	{"cable-driver", "cableDriver", func(o *Options, s *v1alpha1.Submariner) { o.CableDriver = s.Spec.CableDriver }},
	{
		"cable-drivers",
		"cableDrivers",
		func(o *Options, s *v1alpha1.Submariner) { o.CableDrivers = s.Spec.CableDrivers },
	},
	{
		"combined-cable-drivers",
		"combinedCableDrivers",
		func(o *Options, s *v1alpha1.Submariner) { o.CombinedCableDrivers = s.Spec.CombinedCableDrivers },
	},
	{"cable-driver-config", "cableDriverCustomConfig", func(o *Options, s *v1alpha1.Submariner) {
		o.CableDriverConfig = refText(s.Spec.CableDriverCustomConfig)
	}},
	{
		"force-udp-encaps",
		"ceIPSecForceUDPEncaps",
		func(o *Options, s *v1alpha1.Submariner) { o.ForceUDPEncaps = s.Spec.CeIPSecForceUDPEncaps },
	},
	{"ipsec-debug", "ceIPSecDebug", func(o *Options, s *v1alpha1.Submariner) { o.IPsecDebug = s.Spec.CeIPSecDebug }},
	{
		"preferred-server",
		"ceIPSecPreferredServer",
		func(o *Options, s *v1alpha1.Submariner) { o.PreferredServer = s.Spec.CeIPSecPreferredServer },
	},
	{"nattport", "ceIPSecNATTPort", func(o *Options, s *v1alpha1.Submariner) {
		if s.Spec.CeIPSecNATTPort != 0 {
			o.NATTPort = s.Spec.CeIPSecNATTPort
		}
	}},
	{"cluster-labels", "clusterLabels", func(o *Options, s *v1alpha1.Submariner) { o.Labels = s.ClusterLabels() }},
	{"clusterset", "clusterSets", func(o *Options, s *v1alpha1.Submariner) { o.ClusterSets = s.Spec.ClusterSets }},
	{"service-discovery", "serviceDiscoveryEnabled", func(o *Options, s *v1alpha1.Submariner) {
		if s.Spec.ServiceDiscovery != nil { // an earlier version of subctl has recorded nothing
			o.ServiceDiscovery = s.Spec.ServiceDiscoveryEnabled
		}
	}},
	{"dns", "serviceDiscovery.leaveDNS", func(o *Options, s *v1alpha1.Submariner) { o.DNS = !leavesDNS(s) }},
	{"coredns-custom-configmap", "coreDNSCustomConfig", func(o *Options, s *v1alpha1.Submariner) {
		o.CoreDNSConfig = dnsRefText(s.Spec.CoreDNSCustomConfig)
	}},
	{"export-namespaces", "serviceDiscovery.exportNamespaces", func(o *Options, s *v1alpha1.Submariner) {
		if s.Spec.ServiceDiscovery != nil {
			o.ExportNamespaces = s.Spec.ServiceDiscovery.ExportNamespaces
		}
	}},
	{"natt", "natEnabled", func(o *Options, s *v1alpha1.Submariner) { o.NAT = s.Spec.NatEnabled }},
	{
		"health-check",
		"connectionHealthCheck.enabled",
		func(o *Options, s *v1alpha1.Submariner) { o.HealthCheck = s.Spec.HealthCheck().Enabled },
	},
	{"health-check-interval", "connectionHealthCheck.intervalSeconds", func(o *Options, s *v1alpha1.Submariner) {
		o.HealthCheckInterval = s.Spec.HealthCheck().IntervalSeconds
	}},
	{
		"health-check-max-packet-loss-count",
		"connectionHealthCheck.maxPacketLossCount",
		func(o *Options, s *v1alpha1.Submariner) {
			o.HealthCheckMaxLoss = s.Spec.HealthCheck().MaxPacketLossCount
		},
	},
	{"label-gateway", "gateways", func(o *Options, s *v1alpha1.Submariner) {
		if s.Spec.Gateways != nil && *s.Spec.Gateways == 0 && !o.specifies("gateways") &&
			!o.specifies("gateway-nodes") {
			o.LabelGateway = false
		}
	}},
	{
		"multi-active-gateway",
		"multiActiveGatewayEnabled",
		func(o *Options, s *v1alpha1.Submariner) { o.MultiActiveGateway = s.Spec.MultiActiveGatewayEnabled },
	},
	{"https-proxy", "brokerK8sHTTPSProxy", func(o *Options, s *v1alpha1.Submariner) {
		o.HTTPSProxy = s.Spec.BrokerK8sHTTPSProxy
	}},
	{"no-proxy", "brokerK8sNoProxy", func(o *Options, s *v1alpha1.Submariner) { o.NoProxy = s.Spec.BrokerK8sNoProxy }},
	{
		"check-broker-certificate",
		"brokerK8sInsecure",
		func(o *Options, s *v1alpha1.Submariner) { o.InsecureBroker = s.Spec.BrokerK8sInsecure },
	},
}

// With returns o with the stored value of every option that the user did not specify. joined
// describes how the cluster has joined before; it is nil if it has not.
func (o Options) With(joined *v1alpha1.Submariner) Options {
	if joined == nil || !cluster.IsOurs(joined.Labels) {
		return o
	}
	if o.Reset {
		if !o.specifies("clusterset") && o.ClusterID == joined.Spec.ClusterID {
			o.ClusterSets = joined.Spec.ClusterSets
		}
		return o
	}
	o.joined = true
	o.undecided = joined.Spec.ServiceDiscovery == nil
	for _, s := range settings {
		if !o.specifies(s.flag) {
			s.read(&o, joined)
		}
	}
	if chosen := o.specifies("cable-drivers") ||
		o.specifies("combined-cable-drivers"); chosen && !o.specifies("cable-driver") && o.only() != "" {
		o.CableDriver = o.only() // the stored default may be the broker's, which nobody chose here
	}
	return o
}

// from returns o with the default of the broker b for every option that neither the user nor the
// last join has chosen; b may be nil. All that a broker can do with it is to leave service
// discovery out.
func (o Options) from(b *v1alpha1.Broker) Options {
	if b != nil && o.brokers("service-discovery") {
		o.ServiceDiscovery = b.Spec.HasServiceDiscovery()
	}
	return o
}

// brokers reports whether the broker chooses the value of the flag.
func (o Options) brokers(flag string) bool {
	return !o.specifies(flag) && (!o.isStored(flag) || o.undecided)
}

// storedIn returns the field of the Submariner from which the value of the flag comes; empty if it
// does not come from the last join.
func (o Options) storedIn(flag string) string {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.flag == flag })
	if i < 0 || !o.isStored(flag) {
		return ""
	}
	return "Submariner.spec." + settings[i].field
}

// source returns, for messages, what specifies the value of a flag: the flag, or the field from
// which the value comes.
func (o Options) source(flag string) string {
	if field := o.storedIn(flag); field != "" {
		return fmt.Sprintf("%s (stored by an earlier join; specify --%s to change it)", field, flag)
	}
	return "--" + flag
}

// insteadOfAnnotation, on a Submariner, is the broker's address in the join file if the user
// specified another one with --broker-url, without scheme.
const insteadOfAnnotation = "submariner.io/broker-url-instead-of"

// Address returns the broker's address, with scheme: the address that the user specifies or,
// if the join file has the same address as at the last join, has specified then; and otherwise
// the address in the join file.
func (o Options) Address(file *broker.JoinFile, joined *v1alpha1.Submariner) string {
	switch {
	case o.BrokerURL != "":
		return o.BrokerURL
	case joined != nil && !o.Reset && joined.Annotations[insteadOfAnnotation] == withoutScheme(file.BrokerURL):
		return "https://" + joined.Spec.BrokerK8sApiServer
	}
	return file.BrokerURL
}

// specifies reports whether the user specified the flag.
func (o Options) specifies(flag string) bool { return slices.Contains(o.Specified, flag) }

// isStored reports whether the value of the flag comes from the last join.
func (o Options) isStored(flag string) bool { return o.joined && !o.specifies(flag) }

// lastSubmariner returns the Submariner of which the settings stay that the user does not specify;
// it is empty if the cluster has not joined, or if the user asked for the defaults.
func (r request) lastSubmariner() *v1alpha1.Submariner {
	if r.member.Submariner == nil || r.Reset {
		return &v1alpha1.Submariner{}
	}
	return r.member.Submariner.DeepCopy()
}

func list(text string) []string {
	var out []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// refText returns the reference as --cable-driver-config specifies it; empty if it is nil.
func refText(ref *v1alpha1.ConfigMapRef) string {
	switch {
	case ref == nil || ref.ConfigMapName == "":
		return ""
	case ref.Namespace == "" || ref.Namespace == cluster.Namespace:
		return ref.ConfigMapName
	}
	return ref.Namespace + "/" + ref.ConfigMapName
}
