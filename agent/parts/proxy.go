package parts

import (
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/proxy"
)

// brokerProxy returns the proxy through which a gateway reaches the broker, or nil if it reaches
// the broker directly: because the Submariner says so, or because the broker is in the cluster's
// own networks, which the proxy cannot reach. environment are the proxies of the pod's environment,
// and own is the address of this cluster's API server.
func brokerProxy(
	s role.Snapshot, spec v1alpha1.SubmarinerSpec, environment proxy.Settings, own string,
) (via *url.URL, source string) {
	settings := environment
	if spec.BrokerK8sHTTPSProxy != "" {
		settings = proxy.Settings{URL: spec.BrokerK8sHTTPSProxy, Source: "Submariner.spec.brokerK8sHTTPSProxy"}
	}
	except := append([]string{settings.Except}, spec.BrokerK8sNoProxy...)
	settings.Except = strings.Join(append(except, ownNetworks(s, spec, own)...), ",")
	via, err := settings.For("https://" + spec.BrokerK8sApiServer)
	if err != nil { // the API server refuses such a setting
		return nil, ""
	}
	return via, settings.Source
}

// ownNetworks returns what is never reached through a proxy, in the notation of NO_PROXY. Of the
// nodes, only the gateway's own counts: each node writes its own addresses, and could keep all
// gateways from the broker by claiming the broker's, or "*".
func ownNetworks(s role.Snapshot, spec v1alpha1.SubmarinerSpec, own string) []string {
	out := []string{"localhost", ".svc", ".cluster.local", v1alpha1.HostOf(own)}
	for _, networks := range []string{spec.ClusterCIDR, spec.ServiceCIDR, spec.GlobalCIDR} {
		out = append(out, strings.Split(strings.ReplaceAll(networks, " ", ""), ",")...)
	}
	for _, n := range role.List[*corev1.Node](s) {
		for _, a := range n.Status.Addresses {
			if n.Name == s.Node {
				out = append(out, a.Address)
			}
		}
	}
	for _, n := range s.Facts.NeverRouted {
		if n.Reason == ownServer {
			out = append(out, n.Network)
		}
	}
	out = append(out, members.DeviceNetworks(s)...)
	return slices.DeleteFunc(out, func(item string) bool { return item == "" })
}
