package services

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"subctl/api/submariner/v1alpha1"
	"subctl/internal/prefix"
)

// maxAffinity is the bound of Services for the time of a session affinity, in seconds.
const maxAffinity = 86400

// The values of fields of records.
var (
	protocols       = []string{"", string(corev1.ProtocolTCP), string(corev1.ProtocolUDP), string(corev1.ProtocolSCTP)}
	trafficPolicies = []string{
		"", string(corev1.ServiceInternalTrafficPolicyCluster), string(corev1.ServiceInternalTrafficPolicyLocal),
	}
)

// door refuses records of other clusters. A record is accepted or refused as a whole.
type door struct {
	view View
	// addresses are the networks of View.Forbidden that have one address, and wide the others.
	addresses map[netip.Addr]bool
	wide      []netip.Prefix
	// routed are Member.Routed of all members.
	routed []route
}

// route is a network for which gateways are connected to a cluster.
type route struct {
	to      string
	network netip.Prefix
}

func newDoor(v View) *door {
	d := &door{view: v, addresses: map[netip.Addr]bool{}}
	for _, n := range v.Forbidden {
		if n.IsSingleIP() {
			d.addresses[n.Addr()] = true
		} else {
			d.wide = append(d.wide, n)
		}
	}
	for _, m := range v.Members {
		for _, n := range m.Routed {
			d.routed = append(d.routed, route{m.ID, n})
		}
	}
	return d
}

// networks are what a member announces, and of that what leads to it.
type networks struct{ pods, services, routed []netip.Prefix }

func newNetworks(m *Member) networks {
	if len(m.GlobalNetworks) > 0 {
		return networks{pods: m.GlobalNetworks, services: m.GlobalNetworks, routed: m.Routed}
	}
	return networks{pods: m.PodNetworks, services: m.ServiceNetworks, routed: m.Routed}
}

func (n networks) none() bool { return len(n.pods)+len(n.services) == 0 }

// check returns why a record of a cluster is refused; "" if it is accepted.
func (d *door) check(cluster string, r *v1alpha1.ExportedService, n networks) string {
	if len(validation.IsDNS1123Label(r.Namespace)) > 0 || len(validation.IsDNS1123Label(r.Name)) > 0 {
		return "namespace and name must be DNS labels"
	}
	if reason := d.admits(cluster, nameOf(r)); reason != "" {
		return reason
	}
	for _, check := range []func(*v1alpha1.ExportedService) string{checkFields, checkKeys, checkPorts, checkEndpoints} {
		if reason := check(r); reason != "" {
			return reason
		}
	}
	return d.checkAddresses(r, n)
}

// admits returns why a Service of a cluster is not imported, whatever its record has.
func (d *door) admits(cluster string, key types.NamespacedName) string {
	switch {
	case d.view.MayExport != nil && !d.view.MayExport(key.Namespace):
		return fmt.Sprintf("the grant of the cluster does not allow exports from namespace %s", key.Namespace)
	case !allowed(d.view.Rules, cluster, key):
		return "spec.serviceDiscovery.imports of this cluster does not allow to import it from the cluster"
	case !d.view.Namespaces[key.Namespace]:
		return fmt.Sprintf("waiting for namespace %s, which does not exist in this cluster", key.Namespace)
	}
	return ""
}

// allowed reports whether rules allow a Service of a cluster.
func allowed(rules []v1alpha1.ImportRule, cluster string, key types.NamespacedName) bool {
	selected := false
	for _, r := range rules {
		if !matches(r.Namespaces, key.Namespace) || len(r.Services) > 0 && !matches(r.Services, key.Name) {
			continue
		}
		if slices.Contains(r.Clusters, cluster) {
			return true
		}
		selected = true
	}
	return !selected
}

// matches reports whether one of the patterns, names or prefixes that end in "*", matches a name.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		prefix, wild := strings.CutSuffix(p, "*")
		return p == name || wild && strings.HasPrefix(name, prefix)
	})
}

func checkFields(r *v1alpha1.ExportedService) string {
	switch {
	case r.AffinitySeconds < 0 || r.AffinitySeconds > maxAffinity:
		return fmt.Sprintf("affinitySeconds must be between 0 and %d", maxAffinity)
	case !slices.Contains(trafficPolicies, r.InternalTrafficPolicy):
		return "internalTrafficPolicy must be Cluster or Local"
	case r.TrafficDistribution != "" && len(validation.IsQualifiedName(r.TrafficDistribution)) > 0:
		return "trafficDistribution is no name"
	}
	return ""
}

// checkKeys bounds labels and annotations. importable drops those of them that are not for others.
func checkKeys(r *v1alpha1.ExportedService) string {
	size := 0
	for _, m := range []map[string]string{r.Labels, r.Annotations} {
		for k, v := range m {
			size += len(k) + len(v)
		}
	}
	if size > maxKeysSize {
		return fmt.Sprintf("labels and annotations have more than %d bytes", maxKeysSize)
	}
	return ""
}

func checkPorts(r *v1alpha1.ExportedService) string {
	if len(r.Ports) > v1alpha1.MaxExportedPorts {
		return fmt.Sprintf("it has more than %d ports", v1alpha1.MaxExportedPorts)
	}
	if len(r.Ports) == 0 && !r.Headless {
		return "it has no ports"
	}
	for n, p := range r.Ports {
		switch {
		case p.Port < 1 || p.Port > 65535:
			return fmt.Sprintf("port %d is no port number", p.Port)
		case !slices.Contains(protocols, p.Protocol):
			return fmt.Sprintf("the protocol of port %d must be TCP, UDP or SCTP", p.Port)
		case p.Name == "" && len(r.Ports) > 1:
			return fmt.Sprintf("port %d has no name beside other ports", p.Port)
		case p.Name != "" && len(validation.IsDNS1123Label(p.Name)) > 0:
			return fmt.Sprintf("the name of port %d is no DNS label", p.Port)
		case p.AppProtocol != "" && len(validation.IsQualifiedName(p.AppProtocol)) > 0:
			return fmt.Sprintf("the appProtocol of port %d is no qualified name", p.Port)
		}
		for _, o := range r.Ports[:n] {
			if o.Name == p.Name || o.Port == p.Port && protocolOf(o) == protocolOf(p) {
				return fmt.Sprintf("port %d is there twice", p.Port)
			}
		}
	}
	return ""
}

// checkEndpoints checks all of endpoints but addresses.
func checkEndpoints(r *v1alpha1.ExportedService) string {
	pods := 0
	for _, g := range r.Endpoints {
		if len(g.Targets) != len(r.Ports) {
			return "a group of endpoints must have a target for each port"
		}
		for _, t := range g.Targets {
			if t < 0 || t > 65535 {
				return fmt.Sprintf("target %d is no port number", t)
			}
		}
		pods += len(g.Pods)
		for n := range g.Pods {
			if reason := checkPod(&g.Pods[n]); reason != "" {
				return reason
			}
		}
	}
	limit := maxPods
	if r.Headless {
		limit = maxEndpoints
	}
	switch {
	case pods > limit:
		return fmt.Sprintf("it has %d endpoints, more than %d", pods, limit)
	case !r.Headless && pods == 0 && r.Address == "":
		return "it has neither an address nor endpoints"
	}
	return ""
}

func checkPod(p *v1alpha1.ExportedEndpoint) string {
	switch {
	case p.Hostname != "" && len(validation.IsDNS1123Label(p.Hostname)) > 0:
		return "the hostname of an endpoint is no DNS label"
	case p.Zone != "" && len(validation.IsValidLabelValue(p.Zone)) > 0:
		return "the zone of an endpoint is no value of a label"
	}
	switch p.State {
	case v1alpha1.EndpointReady, v1alpha1.EndpointNotReady, v1alpha1.EndpointTerminating, v1alpha1.EndpointServing:
		return ""
	}
	return "the state of an endpoint is none of NotReady, Terminating, Serving"
}

// checkAddresses requires that all addresses are in networks of the cluster, and in none of ours.
func (d *door) checkAddresses(r *v1alpha1.ExportedService, n networks) string {
	if r.Address != "" {
		if reason := d.checkAddress(r.Address, n.services, n.routed, "Service"); reason != "" {
			return reason
		}
	}
	for _, g := range r.Endpoints {
		for _, p := range g.Pods {
			if reason := d.checkAddress(p.IP, n.pods, n.routed, "pod"); reason != "" {
				return reason
			}
		}
	}
	return ""
}

// checkAddress requires that an address is within the networks that a cluster announces. Where
// packets for it go to the cluster, a gateway has compared it with nodes and other clusters, and
// whoever claims it since then, such as a node that has been taken over, does not get the endpoint
// removed.
func (d *door) checkAddress(text string, within, routed []netip.Prefix, kind string) string {
	ip, err := netip.ParseAddr(text)
	switch {
	case err != nil || !ip.Is4():
		return "an address is no IPv4 address"
	case !ip.IsGlobalUnicast():
		return fmt.Sprintf("address %s is of a kind that no endpoint has", ip)
	case !prefix.Contains(within, ip):
		return fmt.Sprintf("address %s is in no %s network, or global network, that the cluster announces", ip, kind)
	case prefix.Contains(d.wide, ip):
		return fmt.Sprintf("address %s is in one of this cluster's own networks", ip)
	case prefix.Contains(routed, ip):
		return ""
	case d.addresses[ip]:
		return fmt.Sprintf("address %s is the address of a node, or an API server, of this cluster", ip)
	}
	for _, r := range d.routed {
		if r.network.Contains(ip) {
			return fmt.Sprintf("address %s leads to cluster %s", ip, r.to)
		}
	}
	return ""
}

// protocolOf returns the protocol of a port. TCP is the default.
func protocolOf(p v1alpha1.ExportedPort) corev1.Protocol {
	if p.Protocol == "" {
		return corev1.ProtocolTCP
	}
	return corev1.Protocol(p.Protocol)
}
