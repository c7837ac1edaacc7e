package join

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/trust"
	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/proxy"
)

// Options are the options of a join. A field with its zero value is chosen automatically,
// except for the fields that DefaultOptions sets.
type Options struct {
	// Specified are the flags that the user specified, without dashes. Where a cluster has
	// joined before, all other settings stay as they are: see With.
	Specified []string
	// Reset specifies that the other settings return to their defaults instead, except for
	// Encryption, which is removed only where the user asks for it, and for ClusterSets, which only
	// the administrator of the broker takes from a cluster.
	Reset bool
	// joined reports whether With has set the options that are not Specified to stored values.
	joined bool
	// undecided reports whether an earlier version of subctl has joined, which knew no service
	// discovery.
	undecided bool

	ClusterID    string
	ClusterCIDRs []string // pod networks; empty: discovered
	ServiceCIDRs []string // Service networks; empty: discovered
	// AllowConflicts specifies whether to join although other clusters announce the same
	// addresses. The agents do not connect such clusters.
	AllowConflicts bool
	CableDriver    string // default and fallback; empty: the broker's, else drivers.Default
	// CableDrivers are the drivers to offer as separate cables. If it and
	// CombinedCableDrivers are empty, the cluster offers all drivers that its gateways
	// can run.
	CableDrivers []string
	// CombinedCableDrivers are the drivers of one combined cable, such as vxlan and ipsec.
	CombinedCableDrivers []string
	// CableDriverConfig names the ConfigMap with settings of the drivers: NAME, or
	// NAMESPACE/NAME.
	CableDriverConfig string
	// Encryption is EncryptionRequired, EncryptionOptional, or empty: as before, which is optional
	// for a new cluster.
	Encryption      string
	ForceUDPEncaps  bool // IPsec is encapsulated in UDP even without NAT
	IPsecDebug      bool
	PreferredServer bool // gateways wait for other gateways to start the IPsec negotiation
	// Labels are labels of the Cluster object, which the selectors of cable policies match.
	Labels map[string]string
	// Globalnet specifies whether the cluster gets a global network on a broker with globalnet.
	Globalnet bool
	// GlobalnetCIDR is that network; empty: one with GlobalnetSize addresses is allocated. 0: as
	// many as the cluster has or, for a new cluster, the broker's default.
	GlobalnetCIDR string
	GlobalnetSize uint
	ClusterSets   []string // empty: "default"
	// ServiceDiscovery specifies whether the cluster exports and imports Services by name.
	ServiceDiscovery bool
	// DNS specifies whether join makes the cluster's DNS forward names of imported Services.
	// CoreDNSConfig names the ConfigMap in which it does: NAME, or NAMESPACE/NAME; empty: it finds
	// out.
	DNS           bool
	CoreDNSConfig string
	NATTPort      int  // UDP port of IPsec
	NAT           bool // there is NAT between the gateways
	// LabelGateway specifies whether join labels a node as a gateway if there is none, and whether
	// other nodes become gateways in place of those that are gone.
	LabelGateway bool
	GatewayNodes []string // nodes to label; empty: as many are chosen as Gateways specifies
	// Gateways is the number of gateway nodes that the cluster is to have at least: join labels
	// those that are missing, spread over zones. 0 is 1.
	Gateways int
	// ExportNamespaces are patterns of the namespaces from which the cluster may export Services;
	// empty: see trust.MayExport.
	ExportNamespaces []string
	// MultiActiveGateway specifies whether every gateway is active.
	MultiActiveGateway bool
	HealthCheck        bool
	// HealthCheckInterval is in seconds, HealthCheckMaxLoss in consecutive pings.
	HealthCheckInterval uint64
	HealthCheckMaxLoss  uint64
	Image               string // of all components; empty: see cluster.Image
	BrokerURL           string // of the broker's API server, with scheme; empty: see Address
	InsecureBroker      bool   // do not verify the certificate of the broker
	BrokerServerName    string // in the certificate of the broker; empty: see ServerName
	// HTTPSProxy is the URL of the proxy through which the gateways reach the broker, proxy.None,
	// or empty: see proxy. NoProxy lists what they reach without it.
	HTTPSProxy string
	NoProxy    []string
	// Environment are the proxies of the environment of this machine.
	Environment proxy.Settings
}

// DefaultOptions returns upstream's defaults, with one difference: NAT is off, because the
// default driver does not work through NAT.
func DefaultOptions() Options {
	return Options{
		NATTPort:            dataplane.IPsecPort,
		LabelGateway:        true,
		Globalnet:           true,
		ServiceDiscovery:    true,
		DNS:                 true,
		HealthCheck:         true,
		HealthCheckInterval: v1alpha1.DefaultHealthCheckInterval,
		HealthCheckMaxLoss:  v1alpha1.DefaultMaxPacketLossCount,
	}
}

// checkOptions refuses invalid options.
func checkOptions(r request) ([]string, error) { return nil, r.Validate() }

// Validate returns all mistakes in o that can be found without asking a cluster.
func (o Options) Validate() error {
	_, pods := cable.ParseCIDRs(o.source("clustercidr"), o.ClusterCIDRs)
	_, services := cable.ParseCIDRs(o.source("servicecidr"), o.ServiceCIDRs)
	errs := []error{submarinerv1.CheckClusterID(o.ClusterID), pods, services}
	_, err := o.choice(o.CableDriver).Offered(o.driverNames())
	errs = append(errs, err, o.checkConfig(), o.checkNATTPort(), o.checkEncryption(), o.checkImageName())
	for _, set := range o.ClusterSets {
		errs = append(errs, broker.CheckClusterSet(set))
	}
	_, globalErr := o.GlobalnetRequest()
	errs = append(errs, o.checkHealthCheck(), o.checkGatewayNumber(), globalErr, o.checkProxy())
	errs = append(errs, o.checkDNSConfig())
	errs = append(errs, trust.CheckNamespaces(o.source("export-namespaces"), o.ExportNamespaces))
	errs = append(errs, submarinerv1.CheckLabels(o.source("cluster-labels"), o.Labels))
	return errors.Join(errs...)
}

// checkGatewayNumber checks the number of gateway nodes, and that no other flag chooses them.
func (o Options) checkGatewayNumber() error {
	if o.Gateways == 0 && !o.specifies("gateways") {
		return nil
	}
	var errs []error
	if o.Gateways < 1 || o.Gateways > trust.MaxGateways {
		errs = append(
			errs,
			fmt.Errorf("--gateways %d is not a number of gateway nodes: specify 1 to %d", o.Gateways,
				trust.MaxGateways),
		)
	}
	if len(o.GatewayNodes) > 0 {
		errs = append(errs,
			errors.New("--gateways chooses the gateway nodes, and --gateway-nodes names them: specify one of them"))
	}
	if !o.LabelGateway {
		errs = append(errs,
			errors.New("--gateways labels nodes, and --label-gateway=false labels none: specify one of them"))
	}
	return errors.Join(errs...)
}

// Sets returns the clustersets to join, sorted.
func (o Options) Sets() []string {
	return v1alpha1.SubmarinerSpec{ClusterSets: o.ClusterSets}.Sets()
}

// checkHealthCheck checks the numbers of the health check against the limits of the Submariner
// object.
func (o Options) checkHealthCheck() error {
	var errs []error
	for _, n := range []struct {
		flag        string
		value, most uint64
	}{
		{"health-check-interval", o.HealthCheckInterval, v1alpha1.HealthCheckIntervalLimit},
		{"health-check-max-packet-loss-count", o.HealthCheckMaxLoss, v1alpha1.PacketLossCountLimit},
	} {
		if n.value == 0 && o.HealthCheck || n.value > n.most {
			errs = append(
				errs,
				fmt.Errorf("%s %d: use a number from 1 to %d, or turn health checks off with --health-check=false",
					o.source(n.flag), n.value, n.most),
			)
		}
	}
	return errors.Join(errs...)
}

// SuggestID returns a cluster ID for a cluster's name in a kubeconfig, as upstream does: in
// lower case, with '-' for anything except letters, digits and '-', and with '0' for a '-'
// at either end. The result may be too long: see submarinerv1.CheckClusterID.
func SuggestID(name string) string {
	id := notInID.ReplaceAllString(strings.ToLower(name), "-")
	if strings.HasPrefix(id, "-") {
		id = "0" + id[1:]
	}
	if strings.HasSuffix(id, "-") {
		id = id[:len(id)-1] + "0"
	}
	return id
}

var notInID = regexp.MustCompile(`[^a-z0-9-]+`)
