package plan

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"regexp"
	"strings"
)

// A network is a switch that no cluster has: every node has a bridge of its name, and the bridges
// are one segment. Nodes have no address there; pods do, and hosts.

// Network is the name of a network: of the bridge in each node, too.
type Network string

var nameOfNetwork = regexp.MustCompile(`^[a-z][a-z0-9]{0,7}$`)

// Validate refuses names of which no names of links can be made.
func (n Network) Validate() error {
	if !nameOfNetwork.MatchString(string(n)) {
		return fmt.Errorf("network %q: a name has up to 8 lower case letters and digits, and begins with a letter",
			string(n))
	}
	return nil
}

const networkBridge = "net-"

// Bridge is the network's switch in the fabric.
func (n Network) Bridge() string { return networkBridge + string(n) }

// NetworkOf is the network that a bridge of the fabric belongs to, if it does.
func NetworkOf(bridge string) (Network, bool) {
	name, ok := strings.CutPrefix(bridge, networkBridge)
	return Network(name), ok
}

// InNode is the node's bridge, NodePort the end, in the node, of the cable to the fabric, and Port
// its other end.
func (n Network) InNode() string          { return string(n) }
func (n Network) NodePort() string        { return "up-" + string(n) }
func (n Network) Port(node string) string { return link("n", node, string(n)) }

// Host is a machine outside all clusters: a router, or whatever pods speak to.
type OuterHost struct {
	Name   string
	Ports  map[Network]netip.Prefix    // with the host's address
	Routes map[netip.Prefix]netip.Addr // to other networks
}

// Netns is the host's network namespace.
func (h OuterHost) Netns() string { return HostNetns(h.Name) }

// HostNetns is the network namespace of the host with a name.
func HostNetns(name string) string { return hostNetns + name }

const hostNetns = Prefix + "-host-"

// IsHost reports whether a network namespace is a host's.
func IsHost(netns string) bool { return strings.HasPrefix(netns, hostNetns) }

// Port is the fabric's end of the cable between the host and a network.
func (h OuterHost) Port(n Network) string { return link("h", h.Name, string(n)) }

// ParseHost reads what the user wants of a host: NETWORK=ADDRESS/BITS, and DESTINATION=GATEWAY of
// routes.
func ParseHost(name string, ports, routes []string) (OuterHost, error) {
	h := OuterHost{Name: name, Ports: map[Network]netip.Prefix{}, Routes: map[netip.Prefix]netip.Addr{}}
	if !nameOfNetwork.MatchString(name) {
		return h, fmt.Errorf("host %q: a name has up to 8 lower case letters and digits, and begins with a letter",
			name)
	}
	for _, arg := range ports {
		network, address, _ := strings.Cut(arg, "=")
		prefix, err := netip.ParsePrefix(address)
		if err != nil {
			return h, fmt.Errorf("%q is not NETWORK=ADDRESS/BITS: %w", arg, err)
		}
		h.Ports[Network(network)] = prefix
	}
	for _, arg := range routes {
		destination, gateway, _ := strings.Cut(arg, "=")
		if destination == "default" {
			destination = "0.0.0.0/0"
		}
		dst, err := netip.ParsePrefix(destination)
		if err != nil {
			return h, fmt.Errorf("--route %q is not DESTINATION=GATEWAY: %w", arg, err)
		}
		via, err := netip.ParseAddr(gateway)
		if err != nil {
			return h, fmt.Errorf("--route %q is not DESTINATION=GATEWAY: %w", arg, err)
		}
		h.Routes[dst] = via
	}
	return h, nil
}

// link is a name for a link that belongs to two things, which together may be too long for one.
func link(prefix, a, b string) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%s", a, b)
	return fmt.Sprintf("%s%08x", prefix, h.Sum32())
}
