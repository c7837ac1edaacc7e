package sdewan

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "subctl/api/sdewan/v1alpha1"
)

// ClusterDomain is the usual domain of a cluster's DNS.
const ClusterDomain = "cluster.local"

// ServiceOf returns the Service that a CNFService names; false if the name is one of DNS.
func ServiceOf(r *batch.CNFService, clusterDomain string) (types.NamespacedName, bool) {
	name := strings.ToLower(strings.TrimSuffix(r.Spec.FullName, "."))
	parts := strings.Split(strings.TrimSuffix(name, "."+clusterDomain), ".")
	switch {
	case len(parts) == 1:
		return types.NamespacedName{Namespace: r.Namespace, Name: parts[0]}, true
	case len(parts) == 3 && parts[2] == "svc":
		return types.NamespacedName{Namespace: parts[1], Name: parts[0]}, true
	}
	return types.NamespacedName{}, false
}

// ServiceAddress returns the address of a Service, and the protocol of one of its ports, for a
// CNFService that leads there: tcp if the port has several.
func ServiceAddress(s *corev1.Service, port string) (address netip.Addr, proto string, err error) {
	var protocols, ports []string
	for _, p := range s.Spec.Ports {
		proto := strings.ToLower(string(p.Protocol))
		ports = append(ports, fmt.Sprintf("%d/%s", p.Port, proto))
		if strconv.Itoa(int(p.Port)) == port {
			protocols = append(protocols, proto)
		}
	}
	switch {
	case len(protocols) == 0:
		return netip.Addr{}, "", fmt.Errorf("spec.dport: Service %s/%s has no port %s, but %s", s.Namespace, s.Name,
			port, strings.Join(ports, ", "))
	case slices.Contains(protocols, "tcp"):
		protocols[0] = "tcp" // as upstream
	}
	for _, ip := range s.Spec.ClusterIPs {
		if a, err := netip.ParseAddr(ip); err == nil && a.Is4() {
			return a, protocols[0], nil
		}
	}
	return netip.Addr{}, "", fmt.Errorf(
		"spec.fullname: Service %s/%s has no IPv4 address in the cluster: a CNF can only lead to a Service with a cluster IP",
		s.Namespace, s.Name)
}
