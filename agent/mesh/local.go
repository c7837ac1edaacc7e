package mesh

import (
	"net/netip"
	"strings"

	"subctl/cable"
)

// local returns this node as a gateway.
func (m Membership) local(s Snapshot, settings map[string]cable.Config) cable.Local {
	podIP, _ := netip.ParseAddr(s.Facts.PodIP) // the zero Addr: the node has none
	spec := m.Submariner.Spec
	healthIP := podIP
	if len(m.Own.Global) > 0 {
		healthIP = netip.Addr{} // other clusters cannot reach the pod network
	}
	return cable.Local{
		Gateway: cable.Gateway{
			Cluster: spec.ClusterID, Host: m.Self.Name, PrivateIP: m.Self.IP, PublicIP: s.PublicIP, HealthIP: healthIP,
			Subnets: m.Own.Announced(), NAT: spec.NatEnabled,
			Name: cableName(spec.ClusterID, m.Self.IP),
		},
		MTU: s.Facts.MTU, PodIP: podIP, PodIPMissing: s.PodIPMissing, Pods: m.Own.Pods, Svcs: m.Own.Services, Global: m.Own.Global, Keys: s.Keys, Settings: settings,
		WireGuard: m.Engines.WireGuard, IPsec: m.Engines.IPsec, Resilient: s.Facts.ResilientGroups,
	}
}

// cableName returns the name of a gateway's cables: the cluster and the address at
// which they end (upstream's format).
func cableName(cluster string, ip netip.Addr) string {
	return "submariner-cable-" + cluster + "-" + strings.ReplaceAll(ip.String(), ".", "-")
}
