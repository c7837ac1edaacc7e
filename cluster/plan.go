package cluster

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/internal/version"
)

// Plan is what join will do.
type Plan struct {
	// Submariner says how the cluster will be joined; the rest follows from it (see
	// Render), but for the public key, which is made when joining.
	Submariner *v1alpha1.Submariner
	// UID tells this cluster from others that claim its ID.
	UID string
	// Gateways are the nodes to label as gateways, sorted.
	Gateways []string
	// OthersNamespace says that the namespace was there before and is not ours.
	OthersNamespace bool
	// Present are the other members that have a gateway, sorted.
	Present []string
	// Found is what is known of the cluster's network.
	Found Network
	// Warnings are what the user should know before.
	Warnings []string
}

// MakePlan decides how to join the cluster of f to the broker of b with the join
// file. The error says everything that is in the way. It changes nothing and asks
// nobody.
func MakePlan(o Options, file *broker.JoinFile, f *Facts, b *BrokerFacts) (*Plan, error) {
	said := o.Validate()
	errs := []error{said, checkVersions(f, b)}
	errs = append(errs,
		deniedError("the cluster at "+f.URL, f.Denied, "join as a cluster administrator"),
		deniedError("the broker at "+b.URL, b.Denied, "use a join file made by this version of subctl deploy-broker"))
	if len(f.Denied) > 0 || len(b.Denied) > 0 {
		return nil, errors.Join(errs...)
	}
	if b.Broker == nil {
		errs = append(errs, fmt.Errorf("there is no broker in namespace %s at %s: make one with subctl deploy-broker", b.Namespace, b.URL))
		return nil, errors.Join(errs...)
	}
	p := &Plan{UID: f.UID, Found: f.Network, Warnings: slices.Clone(f.Network.Warnings)}
	if len(o.ClusterCIDRs) == 0 {
		p.warn(f.Network.Guess)
	}
	errs = append(errs, checkIdentity(o, file, f, b), checkSets(o, b))

	pods, warning, err := choose("--clustercidr", o.ClusterCIDRs, f.Network.Pods, "pod")
	p.warn(warning)
	services, warning, err2 := choose("--servicecidr", o.ServiceCIDRs, f.Network.Services, "Service")
	p.warn(warning)
	if said == nil { // else it has said the same
		errs = append(errs, err, err2)
	}
	errs = append(errs, checkNetworks(o.ClusterID, pods, services, f.Nodes, b))

	driver := cmp.Or(o.CableDriver, b.Broker.Spec.CableDriver, drivers.Default)
	if o.CableDriver == "" && said == nil {
		errs = append(errs, o.checkBrokersDriver(driver))
	}
	errs = append(errs, o.natRefusal(driver))

	var notes []string
	p.Gateways, notes, err = gateways(f.Nodes, o.GatewayNodes, o.LabelGateway)
	errs = append(errs, err)
	for _, note := range notes {
		p.warn(note)
	}
	if b.Broker.Spec.GlobalnetEnabled {
		p.warn("the broker has globalnet enabled, which this version does not do: clusters are connected only if their networks are distinct")
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	p.warn(overruled(o.CableDriver, cmp.Or(b.Broker.Spec.CableDriver, drivers.Default)))
	p.warn(o.configWarning(f.CableConfig))
	p.warn(loopback(file.BrokerURL))
	p.warn(unpullable(o.Image))
	p.OthersNamespace = f.Namespace != nil && !isOurs(f.Namespace.Labels)
	p.Present = present(o.ClusterID, b)
	p.Submariner = newSubmariner(o, file, driver, pods, services)
	if f.Submariner != nil {
		p.Submariner.Spec.CeIPSecPSKSecret = pskSecretName(f.Submariner) // which no flag names
	}
	return p, nil
}

// overruled is the warning for a --cable-driver that the broker's default policy
// overrules; empty if it does not.
func overruled(own, policy string) string {
	if own == "" || cable.Canonical(own) == cable.Canonical(policy) {
		return ""
	}
	return fmt.Sprintf("--cable-driver %s counts where no cable policy decides, and the broker came with one for all pairs: %s. "+
		"Change it (subctl cable-policy), or refuse anything else with --cable-drivers %[1]s", own, policy)
}

func (p *Plan) warn(text string) {
	if text != "" {
		p.Warnings = append(p.Warnings, text)
	}
}

// newSubmariner writes down how the cluster is joined.
func newSubmariner(o Options, file *broker.JoinFile, driver string, pods, services []netip.Prefix) *v1alpha1.Submariner {
	sub := &v1alpha1.Submariner{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SubmarinerName, Namespace: Namespace, Annotations: map[string]string{}},
		Spec: v1alpha1.SubmarinerSpec{
			BrokerK8sApiServer:          withoutScheme(file.BrokerURL),
			BrokerK8sCA:                 base64.StdEncoding.EncodeToString(file.CA),
			BrokerK8sInsecure:           o.InsecureBroker,
			BrokerK8sSecret:             BrokerSecret,
			BrokerK8sRemoteNamespace:    file.BaseNamespace(),
			CeIPSecDebug:                o.IPsecDebug,
			CeIPSecForceUDPEncaps:       o.ForceUDPEncaps,
			CeIPSecNATTPort:             o.NATTPort,
			CeIPSecPreferredServer:      o.PreferredServer,
			CeIPSecPSKSecret:            PSKSecret,
			CableDriver:                 driver,
			CableDrivers:                o.CableDrivers,
			CombinedCableDrivers:        o.CombinedCableDrivers,
			CableDriverCustomConfig:     o.configRef(),
			CableDriverCustomConfigPath: o.CableDriverConfigPath,
			ClusterCIDR:                 joinPrefixes(pods),
			ServiceCIDR:                 joinPrefixes(services),
			ClusterID:                   o.ClusterID,
			ClusterSets:                 o.Sets(),
			ColorCodes:                  "blue", // upstream's tools expect it
			ConnectionHealthCheck: &v1alpha1.HealthCheckSpec{
				Enabled: o.HealthCheck, IntervalSeconds: o.HealthCheckInterval, MaxPacketLossCount: o.HealthCheckMaxLoss,
			},
			HaltOnCertificateError:    true,
			ImageOverrides:            ImageOverrides(o.Image),
			MultiActiveGatewayEnabled: o.MultiActiveGateway,
			Namespace:                 Namespace,
			NatEnabled:                o.NAT,
			Version:                   version.Version,
		},
	}
	var labels []string
	for _, k := range slices.Sorted(maps.Keys(o.Labels)) {
		labels = append(labels, k+"="+o.Labels[k])
	}
	if len(labels) > 0 {
		sub.Annotations[v1alpha1.ClusterLabelsAnnotation] = strings.Join(labels, ",")
	}
	return sub
}

func withoutScheme(address string) string {
	_, rest, ok := strings.Cut(address, "://")
	if !ok {
		rest = address
	}
	return strings.TrimRight(rest, "/")
}

// present returns the other clusters that have a gateway.
func present(self string, b *BrokerFacts) []string {
	var out []string
	for _, e := range b.Endpoints {
		if e.Spec.ClusterID != self {
			out = append(out, e.Spec.ClusterID)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// loopback warns of an address that means another machine on every machine.
func loopback(brokerURL string) string {
	u, err := url.Parse(brokerURL)
	if err != nil {
		return ""
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback()) {
		return ""
	}
	return fmt.Sprintf("the broker's address, %s, is one of this machine alone: gateways elsewhere cannot reach it; say another with --broker-url",
		withoutScheme(brokerURL))
}

// internalIPs returns the IPv4 addresses of nodes in their own network, by "node <name>".
func internalIPs(nodes []corev1.Node) map[string]netip.Addr {
	out := map[string]netip.Addr{}
	for _, n := range nodes {
		for _, a := range n.Status.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			if err == nil && ip.Is4() && a.Type == corev1.NodeInternalIP {
				out["node "+n.Name] = ip
			}
		}
	}
	return out
}
