package broker

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// HasPath reports whether the address of an API server has a path.
func HasPath(address string) bool {
	u, err := url.Parse(address)
	return err == nil && strings.Trim(u.Path, "/") != ""
}

// AddressWarnings returns the reasons why clusters may not be able to use an address of the
// broker's API server, https://host:port.
func AddressWarnings(address string) []string {
	u, err := url.Parse(address)
	if err != nil {
		return nil // see ParseURL
	}
	var out []string
	if why := unreachable(u.Hostname()); why != "" {
		out = append(out, fmt.Sprintf("the broker's address %s %s: specify an address that gateways of other "+
			"clusters can reach with --broker-url", address, why))
	}
	if HasPath(address) {
		out = append(out, fmt.Sprintf("the broker's address %s has a path: it is usually a proxy with users of its "+
			"own, as in Rancher, which does not accept the tokens of service accounts: specify the address of the "+
			"API server itself with --broker-url", address))
	}
	return out
}

// hostNames are names that tools on a developer's machine give to the machine itself.
var hostNames = []string{
	"host.docker.internal", "kubernetes.docker.internal", "host.minikube.internal", "control-plane.minikube.internal",
	"host.rancher-desktop.internal", "host.lima.internal", "host.containers.internal",
}

// unreachable returns why a host cannot be reached from elsewhere; "" if nothing tells that.
func unreachable(host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		switch ip = ip.Unmap(); {
		case ip.IsLoopback(), ip.IsUnspecified():
			return "can be reached only from its own machine"
		case ip.IsLinkLocalUnicast():
			return "can be reached only from its own link"
		}
		return ""
	}
	switch {
	case host == "localhost", strings.HasSuffix(host, ".localhost"):
		return "can be reached only from its own machine"
	case slices.Contains(hostNames, host):
		return "has a name that only the machine with its containers knows"
	case strings.HasSuffix(host, ".svc"), strings.HasSuffix(host, ".svc.cluster.local"):
		return "is a Service, which can be reached only inside its own cluster"
	case strings.HasSuffix(host, "-control-plane"), strings.HasSuffix(host, "-external-load-balancer"),
		strings.HasPrefix(host, "k3d-"), host == "minikube":
		return "has the name of a container, which only containers on the same machine know"
	}
	return ""
}
