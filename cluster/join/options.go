package join

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/dataplane"
)

// Options is what a user may say about a join. The zero value of a field leaves
// the choice to us, but for those that DefaultOptions sets.
type Options struct {
	ClusterID    string
	ClusterCIDRs []string // pod networks; empty: discovered
	ServiceCIDRs []string // Service networks; empty: discovered
	CableDriver  string   // default and fallback; empty: the broker's, else drivers.Default
	// CableDrivers are those to offer as separate cables. Empty, with no combined ones
	// either: all that the gateways have the means for.
	CableDrivers []string
	// CombinedCableDrivers are those of one combined cable, such as vxlan and ipsec.
	CombinedCableDrivers []string
	// CableDriverConfig names the ConfigMap with settings of the drivers: NAME, or
	// NAMESPACE/NAME.
	CableDriverConfig     string
	CableDriverConfigPath string // where that is mounted; empty: DefaultConfigPath
	ForceUDPEncaps        bool   // IPsec goes inside UDP even where nothing translates addresses
	IPsecDebug            bool
	PreferredServer       bool // gateways wait for others to begin to negotiate IPsec
	// Labels go on the Cluster object, where cable policies select by them.
	Labels      map[string]string
	ClusterSets []string // empty: "default"
	NATTPort    int      // UDP port of IPsec
	NAT         bool     // an address translation lies between the gateways
	// LabelGateway lets join label a node as gateway where there is none.
	LabelGateway bool
	GatewayNodes []string // nodes to label; empty: one is chosen if none is labelled
	HealthCheck  bool
	// HealthCheckInterval is in seconds, HealthCheckMaxLoss in pings in a row.
	HealthCheckInterval uint64
	HealthCheckMaxLoss  uint64
	Image               string // of all components; empty: see Image
	InsecureBroker      bool   // the broker's certificate is not checked
	MultiActiveGateway  bool
}

// DefaultOptions returns upstream's defaults, with one difference: NAT is off,
// because the default driver cannot pass an address translation.
func DefaultOptions() Options {
	return Options{
		NATTPort: dataplane.IPsecPort, LabelGateway: true,
		HealthCheck: true, HealthCheckInterval: v1alpha1.DefaultHealthCheckInterval, HealthCheckMaxLoss: v1alpha1.DefaultMaxPacketLossCount,
	}
}

// checkOptions refuses what is wrong with the options by themselves.
func checkOptions(r request) ([]string, error) { return nil, r.Validate() }

// Validate says everything that is wrong with o by itself.
func (o Options) Validate() error {
	_, pods := parseCIDRs("--clustercidr", o.ClusterCIDRs)
	_, services := parseCIDRs("--servicecidr", o.ServiceCIDRs)
	errs := []error{submarinerv1.CheckClusterID(o.ClusterID), pods, services}
	_, err := o.choice(o.CableDriver).Offered(driverFlags)
	errs = append(errs, err, o.checkConfig(), o.checkNATTPort())
	for _, set := range o.ClusterSets {
		errs = append(errs, broker.CheckClusterSet(set))
	}
	if o.HealthCheck && (o.HealthCheckInterval == 0 || o.HealthCheckMaxLoss == 0) {
		errs = append(errs, errors.New("--health-check-interval and --health-check-max-packet-loss-count must be at least 1: "+
			"turn health checks off with --health-check=false"))
	}
	if o.MultiActiveGateway {
		errs = append(errs, errors.New("--multi-active-gateway is not there yet: this version runs one active gateway, and the others stand by"))
	}
	errs = append(errs, checkLabels(o.Labels))
	return errors.Join(errs...)
}

func checkLabels(labels map[string]string) error {
	var errs []error
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		for _, text := range validation.IsQualifiedName(k) {
			errs = append(errs, fmt.Errorf("--cluster-labels: %q cannot be the name of a label: %s", k, text))
		}
		for _, text := range validation.IsValidLabelValue(labels[k]) {
			errs = append(errs, fmt.Errorf("--cluster-labels: %q cannot be the value of label %q: %s", labels[k], k, text))
		}
	}
	return errors.Join(errs...)
}

// Sets returns the clustersets to be in, sorted.
func (o Options) Sets() []string {
	return v1alpha1.SubmarinerSpec{ClusterSets: o.ClusterSets}.Sets()
}
