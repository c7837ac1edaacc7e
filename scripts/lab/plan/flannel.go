package plan

import (
	"fmt"
	"strings"
)

// What connects the pods of a cluster: host routes that the lab makes, or flannel with one of its
// backends.
const (
	PTP           = "ptp"
	FlannelVXLAN  = "flannel-vxlan"
	FlannelHostGW = "flannel-host-gw"
)

// Flannel returns the backend of flannel: "vxlan", "host-gw", or "" if flannel is not the CNI.
func (c Cluster) Flannel() string {
	backend, ok := strings.CutPrefix(c.CNI, "flannel-")
	if !ok {
		return ""
	}
	return backend
}

// FlannelConfig is flannel's net-conf.json. Only the network, the backend and the mode are set; the
// rest is as in flannel's own manifest: VNI 1, UDP port 8472.
func (c Cluster) FlannelConfig() string {
	return fmt.Sprintf(`{"Network": %q, "EnableNFTables": %t, "Backend": {"Type": %q}}`, c.Pods(),
		c.ProxyMode == "nftables", c.Flannel())
}
