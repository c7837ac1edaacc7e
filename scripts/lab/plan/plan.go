// Package plan says what everything in the lab is called and where it lives: names, addresses,
// CIDRs, network namespaces. It is arithmetic only. It creates nothing, reads nothing and imports
// nothing of Kubernetes, so that its tests are cheap.
package plan

import (
	"fmt"
	"net/netip"
)

const (
	// Prefix starts the name of everything of the lab that lives outside its state directory:
	// network namespaces, the cgroup subtree, the link in the root namespace. What has this prefix
	// is the lab's, and nothing else is.
	Prefix = "subctl-lab"

	// FabricNetns holds the router between the clusters.
	FabricNetns = Prefix + "-fabric"

	// HostLink is the end, in the root namespace, of the one link between the machine and the lab.
	// FabricUplink is the other.
	HostLink     = Prefix + "0"
	FabricUplink = "host"

	// MaxClusters keeps service CIDRs (10.101, 10.102 …) clear of pod CIDRs (10.111, 10.112 …).
	MaxClusters = 10
	// MaxNodes keeps node addresses (.11 and up) clear of the gateway (.254), with room to spare.
	MaxNodes = 50

	// APIPort is the port of each cluster's API server, on an address of its own.
	APIPort = 6443

	// NodeBin has the lab's binaries in each node.
	NodeBin = "/opt/lab/bin"
)

var (
	// FabricCIDR holds the addresses of API servers and nodes. The root namespace gets one route:
	// to this.
	FabricCIDR = netip.MustParsePrefix("10.100.0.0/16")
	// HostAddr and FabricAddr are the ends of the link to the root namespace.
	HostAddr   = netip.MustParsePrefix("10.100.0.1/30")
	FabricAddr = netip.MustParsePrefix("10.100.0.2/30")
)

// Cluster is one cluster of the lab, as the user asked for it.
type Cluster struct {
	Number int `json:"number"`
	Nodes  int `json:"nodes"`
	// the same pod and service CIDRs as every other overlapping cluster
	Overlapping bool   `json:"overlapping,omitempty"`
	ProxyMode   string `json:"proxyMode"`            // of kube-proxy, and of flannel: iptables or nftables
	CNI         string `json:"cni,omitempty"`        // PTP, FlannelVXLAN or FlannelHostGW; empty is PTP
	Multus      bool   `json:"multus,omitempty"`     // attaches pods to more networks, beside the CNI
	WithoutDNS  bool   `json:"withoutDNS,omitempty"` // no CoreDNS at the address that kubelets give to pods
}

// Validate says what a user may not ask for.
func (c Cluster) Validate() error {
	switch {
	case c.Number < 1 || c.Number > MaxClusters:
		return fmt.Errorf("cluster number %d: it must be between 1 and %d, or service and pod CIDRs would meet",
			c.Number, MaxClusters)
	case c.Nodes < 0 || c.Nodes > MaxNodes:
		return fmt.Errorf("%d nodes in %s: it must be between 0 and %d", c.Nodes, c.Name(), MaxNodes)
	case c.ProxyMode != "iptables" && c.ProxyMode != "nftables":
		return fmt.Errorf("proxy mode %q: it must be iptables or nftables", c.ProxyMode)
	case c.CNI != "" && c.CNI != PTP && c.CNI != FlannelVXLAN && c.CNI != FlannelHostGW:
		return fmt.Errorf("CNI %q: it must be %s, %s or %s", c.CNI, PTP, FlannelVXLAN, FlannelHostGW)
	case c.Multus && c.Flannel() != "":
		return fmt.Errorf("%s with Multus: the lab has it only beside the CNI %s", c.Name(), PTP)
	}
	return nil
}

// Name is the name of the cluster, of its kubeconfig context and of its kubeconfig file.
func (c Cluster) Name() string { return fmt.Sprintf("cluster%d", c.Number) }

// Netns is the network namespace of the control plane.
func (c Cluster) Netns() string { return Prefix + "-" + c.Name() }

// Bridge is the switch, in the fabric, that joins the control plane and the nodes of this cluster.
func (c Cluster) Bridge() string { return fmt.Sprintf("br%d", c.Number) }

// Gateway is the fabric's address on that switch, the default route of all that is plugged into it.
func (c Cluster) Gateway() netip.Prefix { return c.fabric(254) }

// Domain is the cluster's DNS domain.
func (c Cluster) Domain() string { return "cluster.local" }

// Pods is the pod CIDR. Services is the service CIDR.
func (c Cluster) Pods() netip.Prefix     { return cidr(110+c.block(), 0, 0, 16) }
func (c Cluster) Services() netip.Prefix { return cidr(100+c.block(), 0, 0, 16) }

// DNS is the address of the cluster's DNS server, which kubelets give to pods.
func (c Cluster) DNS() netip.Addr { return cidr(100+c.block(), 0, 10, 16).Addr() }

// API is the control plane's place in the fabric.
func (c Cluster) API() Port {
	return Port{Name: c.Name() + "-api", Link: fmt.Sprintf("c%d", c.Number), Netns: c.Netns(), Addr: c.fabric(1)}
}

// Server is the URL of the API server, reachable from the root namespace and from every node and
// pod of every cluster.
func (c Cluster) Server() string { return fmt.Sprintf("https://%s:%d", c.API().Addr.Addr(), APIPort) }

// Members are the nodes of the cluster.
func (c Cluster) Members() []Node {
	nodes := make([]Node, 0, c.Nodes)
	for n := 1; n <= c.Nodes; n++ {
		nodes = append(nodes, Node{Cluster: c, Number: n})
	}
	return nodes
}

// Ports is everything of the cluster that is plugged into the fabric: the control plane, then the
// nodes.
func (c Cluster) Ports() []Port {
	ports := []Port{c.API()}
	for _, n := range c.Members() {
		ports = append(ports, n.Port())
	}
	return ports
}

// block is the number its CIDRs are made from: overlapping clusters all use those of cluster1.
func (c Cluster) block() int {
	if c.Overlapping {
		return 1
	}
	return c.Number
}

func (c Cluster) fabric(host int) netip.Prefix { return cidr(100, c.Number, host, 24) }

// Node is one node of a cluster.
type Node struct {
	Cluster Cluster `json:"cluster"`
	Number  int     `json:"number"`
}

// Name is the name of the Node object and of the node's directory and cgroup.
func (n Node) Name() string { return fmt.Sprintf("%s-node%d", n.Cluster.Name(), n.Number) }

// Netns is the node's network namespace.
func (n Node) Netns() string { return Prefix + "-" + n.Name() }

// Addr is the node's address, and the /24 it lies in.
func (n Node) Addr() netip.Prefix { return n.Cluster.fabric(10 + n.Number) }

// Pods is the node's share of the pod CIDR.
func (n Node) Pods() netip.Prefix { return cidr(110+n.Cluster.block(), n.Number, 0, 24) }

// Port is the node's place in the fabric.
func (n Node) Port() Port {
	return Port{
		Name:  n.Name(),
		Link:  fmt.Sprintf("c%dn%d", n.Cluster.Number, n.Number),
		Netns: n.Netns(),
		Addr:  n.Addr(),
	}
}

// Port is something plugged into the fabric: Link is the fabric's end of the cable.
type Port struct {
	Name, Link, Netns string
	Addr              netip.Prefix
}

func cidr(second, third, fourth, bits int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(second), byte(third), byte(fourth)}), bits)
}
