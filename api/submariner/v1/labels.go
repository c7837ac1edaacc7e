package v1

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Names and labels, most of which Submariner's tools use too.
const (
	// ClusterIDLabel is on every object that is copied between clusters. Its value is the
	// ID of the cluster that owns the object. An object without the label is local.
	ClusterIDLabel = "submariner-io/clusterID"
	// BrokerID is the value of ClusterIDLabel on copies of objects that were created on the
	// broker itself. It is not a valid cluster ID, which has no capital letters.
	BrokerID = "BROKER"
	// ClusterSetLabel is on every broker namespace. Its value is the name of the clusterset.
	// On a cable policy, it restricts the policy to that clusterset.
	ClusterSetLabel = "submariner.io/clusterset"
	// NameAnnotation is on every object of a member on the broker, except Clusters: the name that
	// the object has in clusters. Its own name is one of the slots of the member, <cluster
	// ID>.<number>, which bound what the member stores.
	NameAnnotation = "submariner.io/name"
	// ManagedByLabel with the value ManagedBy is on every object that subctl creates.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// ManagedBy is the value of ManagedByLabel.
	ManagedBy = "subctl"
	// GatewayNodeLabel with value "true" makes a node a gateway.
	GatewayNodeLabel = "submariner.io/gateway"
	// LabelledByAnnotation is on the nodes that join, or the agent that replaces gateway nodes, has
	// labelled as gateways. If its value is ManagedBy, uninstall removes the gateway label.
	LabelledByAnnotation = "submariner.io/labelled-by"
	// PublicIPAnnotation is an annotation, or a label, of a gateway node. It specifies the node's
	// public address: "ipv4:192.0.2.7" or "dns:gw.example.com", or as a label the bare address.
	PublicIPAnnotation = "gateway.submariner.io/public-ip"
	// WeightAnnotation is an annotation of a gateway node: its share of new flows, compared to the
	// other gateways of the cluster. It is a number from 1 to 100; without it, 100. 0 drains the
	// gateway, as DrainAnnotation does.
	WeightAnnotation = "gateway.submariner.io/weight"
	// DrainAnnotation is an annotation of a gateway node that is to get no new flows. Its value is
	// the time that the flows that the gateway has are given to end, such as "5m". Then other nodes
	// and clusters stop using it.
	DrainAnnotation = "gateway.submariner.io/drain"

	// OperatorNamespace is the namespace of all objects of a joined cluster.
	OperatorNamespace = "submariner-operator"
	// BrokerNamespace is the broker's namespace of the clusterset "default".
	BrokerNamespace = "submariner-k8s-broker"
	// DefaultClusterSet is the clusterset of clusters that do not specify one.
	DefaultClusterSet = "default"

	// GatewayLease is the name of the Lease that the speaker of the cluster holds. It is the active
	// gateway, too, unless Submariner.spec.multiActiveGatewayEnabled makes every gateway active.
	GatewayLease = "submariner-gateway-lock"
	// GlobalnetLease is the name of the Lease of the agent that allocates global addresses
	// (upstream), and GlobalnetMemory of the ConfigMap with the addresses that it has used.
	GlobalnetLease  = "submariner-globalnet-lock"
	GlobalnetMemory = "submariner-globalnet-memory"
	// GatewayNodesLease is the name of the Lease of the agent that replaces gateway nodes.
	GatewayNodesLease = "submariner-gateway-nodes-lock"
	// ServicesLease is the name of the Lease of the agent of service discovery.
	ServicesLease = "submariner-service-discovery-lock"
)

// LeaseHolder returns the name of a node's gateway on GatewayLease (upstream's format), and on
// the node's own Lease.
func LeaseHolder(node string) string { return node + "-submariner-gateway" }

// The name of a node's own Lease begins with NodeLeasePrefix. The name of the node follows, or its
// first NodeLeaseCut bytes and a hash if it is longer than NodeLeaseMost bytes: the name of an
// object has at most 253.
const (
	NodeLeasePrefix = GatewayLease + "-"
	NodeLeaseMost   = validation.DNS1123SubdomainMaxLength - len(NodeLeasePrefix)
	NodeLeaseCut    = NodeLeaseMost - nodeLeaseHash
	nodeLeaseHash   = 10 // hexadecimal digits, which are valid after every byte of a name
)

// NodeLease returns the name of the Lease of a gateway node. Its gateway renews it if the cluster
// has several gateways.
func NodeLease(node string) string {
	if len(node) <= NodeLeaseMost {
		return NodeLeasePrefix + node
	}
	hash := sha256.Sum256([]byte(node))
	return NodeLeasePrefix + node[:NodeLeaseCut] + hex.EncodeToString(hash[:])[:nodeLeaseHash]
}

// ToBeDrained reports whether the annotations of a node drain its gateway.
func ToBeDrained(annotations map[string]string) bool {
	_, asked := annotations[DrainAnnotation]
	weight, err := strconv.Atoi(annotations[WeightAnnotation])
	return asked || err == nil && weight == 0
}

// The time that the connections of a gateway are given to end when it is drained.
const (
	DefaultGrace = 5 * time.Minute
	MaxGrace     = 24 * time.Hour
)

// GracePeriod returns the time that the annotations of a node give the connections of its gateway;
// DefaultGrace if they specify none. ok is false if they specify it wrongly: it is DefaultGrace
// then, too.
func GracePeriod(annotations map[string]string) (grace time.Duration, ok bool) {
	text, set := annotations[DrainAnnotation]
	if !set {
		return DefaultGrace, true
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 && d <= MaxGrace {
		return d, true
	}
	return DefaultGrace, false
}

// Keys of Endpoint.spec.backend_config. Drivers define further keys.
const (
	// BackendUDPPort is the UDP port of IPsec (upstream: of the cable, whatever its driver).
	BackendUDPPort = "udp-port"
	// BackendNATDiscoveryPort is the UDP port of path discovery.
	BackendNATDiscoveryPort = "natt-discovery-port"
	// BackendPreferredServer is "true" if the gateway waits for other gateways to start the
	// IPsec negotiation.
	BackendPreferredServer = "preferred-server"
	// BackendDrivers lists the drivers that the gateway offers, separated by commas.
	// Without it, the gateway offers only Endpoint.spec.backend.
	BackendDrivers = "cable-drivers"
	// BackendMissing has the reasons why the gateway does not offer the other drivers, for
	// messages: one line per driver, "ipsec: this node has no IPsec: …".
	BackendMissing = "cable-drivers-missing"
	// BackendWeight is the weight of the gateway, from 1 to 100. Without it, the weight is 100.
	BackendWeight = "gateway-weight"
	// BackendDrain is "draining" or "drained" if the gateway is on its way out of service, and
	// "standby" if another gateway of its cluster is the active one.
	BackendDrain = "gateway-drain"
	// BackendNotRunning names agents of the cluster that do not run, for messages. Without it, all
	// run, as far as the gateway knows.
	BackendNotRunning = "agents-not-running"
	// BackendLeaving is "true" if the node is no gateway node any more, so that its cables end
	// within seconds. It is for messages.
	BackendLeaving = "gateway-leaving"
	// BackendSiblings is "true" if the cluster has other active gateways, and else "false". Both
	// ends of a cable choose its driver by it.
	BackendSiblings = "gateway-siblings"
	// BackendOctets are the last three octets of the gateway's addresses on the devices of cables,
	// such as "16.1.11". Without it, they are those of Endpoint.spec.private_ip.
	BackendOctets = "gateway-octets"
)

// The values of BackendDrain, and, except Standby, of GatewayStatus.Drain.
const (
	Draining = "draining"
	Drained  = "drained"
	Standby  = "standby"
)

// ReservedLabels are the prefixes of labels that only our components set: some of them
// decide whose an object is.
var ReservedLabels = []string{"submariner-io/", "submariner.io/"}

// GatewayNodeKeys returns the keys of the labels and annotations of nodes that agents and their
// DaemonSets read. Admission policies keep nodes from changing them.
func GatewayNodeKeys() []string {
	return []string{GatewayNodeLabel, LabelledByAnnotation, PublicIPAnnotation, WeightAnnotation, DrainAnnotation}
}

// IsReservedLabel reports whether only our components may set the label.
func IsReservedLabel(key string) bool {
	return slices.ContainsFunc(ReservedLabels, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// CheckLabels returns all mistakes in the labels that a user gives to a cluster: names and
// values that Kubernetes refuses, and reserved names. where is the flag or field with the
// labels, for messages. The CRD of Submariner refuses
// reserved names too.
func CheckLabels(where string, labels map[string]string) error {
	var errs []error
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		for _, text := range validation.IsQualifiedName(k) {
			errs = append(errs, fmt.Errorf("%s: %q is not a valid name of a label: %s", where, k, withoutPattern(text)))
		}
		for _, text := range validation.IsValidLabelValue(labels[k]) {
			errs = append(errs,
				fmt.Errorf("%s: %q is not a valid value of label %q: %s", where, labels[k], k, withoutPattern(text)))
		}
		if IsReservedLabel(k) {
			errs = append(
				errs,
				fmt.Errorf("%s: label %q is reserved: the agents use labels that begin with %s; choose another name",
					where, k, strings.Join(ReservedLabels, " or ")),
			)
		}
	}
	if len(labels) > MaxLabels {
		errs = append(errs,
			fmt.Errorf("%s: %d labels are too many: a cluster can have up to %d", where, len(labels), MaxLabels))
	}
	return errors.Join(errs...)
}

// MaxLabels is the number of labels that a user can give to a cluster.
const MaxLabels = 64

// SharedLabels returns the labels of an object that clusters exchange, and by which the
// selectors of cable policies select a cluster: the labels that a user may set, at most
// MaxLabels, the lower names first. The cluster itself goes by the same labels, so that both
// ends of a pair have the same.
func SharedLabels(labels map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range labels {
		if !IsReservedLabel(k) {
			out[k] = v
		}
	}
	if len(out) > MaxLabels {
		for _, k := range slices.Sorted(maps.Keys(out))[MaxLabels:] {
			delete(out, k)
		}
	}
	return out
}

// withoutPattern returns a text of package validation without its examples and its regular
// expression.
func withoutPattern(text string) string {
	text, _, _ = strings.Cut(text, " (e.g. ")
	return text
}

// ParseLabels parses labels in the format of join, k=v,k=v. It skips entries in any other
// format.
func ParseLabels(text string) map[string]string {
	out := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			out[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	return out
}

// FormatLabels is the inverse of ParseLabels; it sorts the labels.
func FormatLabels(labels map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, k+"="+labels[k])
	}
	return strings.Join(out, ",")
}
