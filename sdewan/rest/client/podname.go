package client

import (
	"net/netip"
	"strings"
)

// PodName returns the name in the certificate of a CNF: that of its pod in the cluster's DNS, such
// as 10-1-2-3.default.pod.cluster.local.
func PodName(pod netip.Addr, namespace, clusterDomain string) string {
	return strings.NewReplacer(".", "-", ":", "-").Replace(pod.String()) + "." + namespace + ".pod." + clusterDomain
}
