package join

import (
	"encoding/base64"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cable"
	"subctl/cluster"
	"subctl/cluster/networks"
	"subctl/internal/version"
)

// Plan describes a join.
type Plan struct {
	// Submariner describes how the cluster joins. All other objects are rendered from it
	// (see cluster.Render). It lacks the public key, which is created when joining.
	Submariner *v1alpha1.Submariner
	// UID distinguishes this cluster from other clusters that claim its ID.
	UID string
	// Gateways are the nodes to label as gateways, sorted.
	Gateways []string
	// OthersNamespace reports whether the namespace existed before the first join.
	OthersNamespace bool
	// Present are the other members that have a gateway, sorted.
	Present []string
	// Found are the discovered networks of the cluster.
	Found networks.Discovered
	// Warnings are for the user to read before the cluster joins.
	Warnings []string
}

// MakePlan returns how to join the cluster of f to the broker of b with the join file, or an
// error with all mistakes. It is a pure function.
func MakePlan(o Options, file *broker.JoinFile, f *Facts, b *BrokerFacts) (*Plan, error) {
	r := request{Options: o, file: file, member: f, broker: b}
	warnings, err := r.check()
	if err != nil {
		return nil, err
	}
	p := &Plan{
		UID: f.UID, Found: f.Network, Warnings: warnings, Present: present(o.ClusterID, b),
		OthersNamespace: f.Namespace != nil && !cluster.IsOurs(f.Namespace.Labels),
	}
	p.Gateways, _, _ = r.gateways() // the checks have passed
	pods, _, _ := r.pods()
	services, _, _ := r.services()
	p.Submariner = newSubmariner(o, file, r.driver(), pods, services)
	if f.Submariner != nil {
		p.Submariner.Spec.CeIPSecPSKSecret = cluster.PSKSecretName(f.Submariner) // no flag sets it
	}
	p.Submariner.Spec.Encryption = r.encryption()
	return p, nil
}

// newSubmariner returns the Submariner object of the cluster.
func newSubmariner(o Options, file *broker.JoinFile, driver string, pods, services []netip.Prefix) *v1alpha1.Submariner {
	sub := &v1alpha1.Submariner{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SubmarinerName, Namespace: cluster.Namespace, Annotations: map[string]string{}},
		Spec: v1alpha1.SubmarinerSpec{
			BrokerK8sApiServer:          withoutScheme(file.BrokerURL),
			BrokerK8sCA:                 base64.StdEncoding.EncodeToString(file.CA),
			BrokerK8sInsecure:           o.InsecureBroker,
			BrokerK8sSecret:             cluster.BrokerSecret,
			BrokerK8sRemoteNamespace:    file.BaseNamespace(),
			CeIPSecDebug:                o.IPsecDebug,
			CeIPSecForceUDPEncaps:       o.ForceUDPEncaps,
			CeIPSecNATTPort:             o.NATTPort,
			CeIPSecPreferredServer:      o.PreferredServer,
			CeIPSecPSKSecret:            cluster.PSKSecret,
			CableDriver:                 driver,
			CableDrivers:                o.CableDrivers,
			CombinedCableDrivers:        o.CombinedCableDrivers,
			CableDriverCustomConfig:     o.configRef(),
			CableDriverCustomConfigPath: o.CableDriverConfigPath,
			ClusterCIDR:                 cable.FormatCIDRs(pods),
			ServiceCIDR:                 cable.FormatCIDRs(services),
			ClusterID:                   o.ClusterID,
			ClusterLabels:               o.Labels,
			ClusterSets:                 o.Sets(),
			ColorCodes:                  "blue", // upstream's tools expect it
			ConnectionHealthCheck: &v1alpha1.HealthCheckSpec{
				Enabled: o.HealthCheck, IntervalSeconds: o.HealthCheckInterval, MaxPacketLossCount: o.HealthCheckMaxLoss,
			},
			HaltOnCertificateError:    true,
			ImageOverrides:            cluster.ImageOverrides(o.Image),
			MultiActiveGatewayEnabled: o.MultiActiveGateway,
			Namespace:                 cluster.Namespace,
			NatEnabled:                o.NAT,
			Version:                   version.Version,
		},
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
