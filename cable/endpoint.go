package cable

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
	"subctl/internal/prefix"
)

// MaxSubnets is the maximum number of networks that an endpoint may announce. A cluster has
// one or two of each family; the limit prevents a hostile cluster from filling our tables.
const MaxSubnets = 128

// reserved are networks that no cluster can use, in addition to the networks of our devices,
// with the reason.
var reserved = []struct {
	net netip.Prefix
	why string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), `"this network" (RFC 1122)`},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback (RFC 1122)"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local (RFC 3927)"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast (RFC 5771)"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast (RFC 919)"},
}

// reservedNet returns the reserved network that overlaps n, with the reason; empty if there
// is none.
func reservedNet(n netip.Prefix) string {
	for _, r := range reserved {
		if r.net.Overlaps(n) {
			return fmt.Sprintf("%v, %s", r.net, r.why)
		}
	}
	for _, own := range dataplane.DeviceNets {
		if own.Net.Overlaps(n) {
			return fmt.Sprintf("%v, the addresses of our %s", own.Net, own.Devices)
		}
	}
	return ""
}

// Parse returns the Gateway of an Endpoint of another cluster or of our own. The error
// contains all mistakes, joined; the Gateway then holds the valid fields. Parse does not
// compare with our networks: see CheckRemote.
func Parse(s submarinerv1.EndpointSpec) (Gateway, error) {
	g := Gateway{Cluster: s.ClusterID, Name: s.CableName, Host: s.Hostname, NAT: s.NATEnabled, Config: s.BackendConfig}
	var errs []error
	if msgs := validation.IsDNS1123Label(s.ClusterID); len(msgs) > 0 {
		errs = append(errs, fmt.Errorf("cluster ID %.80q is not a DNS-1123 label", s.ClusterID))
	}
	if s.CableName == "" {
		errs = append(errs, errors.New("it has no cable name"))
	}
	var err error
	if g.PrivateIP, err = ParseHost(s.PrivateIP); err != nil {
		errs = append(errs, fmt.Errorf("private IP %.80q: %w", s.PrivateIP, err))
	}
	if text, told := s.BackendConfig[submarinerv1.BackendOctets]; told {
		if g.Octets, err = ParseOctets(text); err != nil {
			errs = append(errs, fmt.Errorf("its %s %w", submarinerv1.BackendOctets, err))
		}
	}
	if s.PublicIP != "" {
		if g.PublicIP, err = ParseHost(s.PublicIP); err != nil {
			errs = append(errs, fmt.Errorf("public IP %.80q: %w", s.PublicIP, err))
		}
	}
	g.Default = Canonical(s.Backend)
	g.Drivers = offered(s)
	g.Missing = parseMissing(s.BackendConfig[submarinerv1.BackendMissing])
	switch {
	case g.Default == "":
		errs = append(errs, errors.New("backend is empty: it must name the default cable driver"))
	case len(g.Drivers) == 0:
		errs = append(errs,
			errors.New("it offers no cable driver: its gateway lacks the prerequisites of every driver of its cluster"))
	}
	if g.Weight, g.Drain, err = parseShare(s.BackendConfig); err != nil {
		errs = append(errs, err)
	}
	g.NotRunning = cleanReason(s.BackendConfig[submarinerv1.BackendNotRunning])
	siblings, told := s.BackendConfig[submarinerv1.BackendSiblings]
	g.Siblings = siblings == "true"
	g.TellsSiblings = told
	if s.HealthCheckIP != "" {
		if g.HealthIP, err = ParseHost(s.HealthCheckIP); err != nil {
			errs = append(errs, fmt.Errorf("health check IP %.80q: %w", s.HealthCheckIP, err))
		}
	}
	if len(s.Subnets) == 0 {
		errs = append(errs, errors.New("it announces no subnet"))
	}
	if len(s.Subnets) > MaxSubnets {
		errs = append(errs, fmt.Errorf("it announces %d subnets: at most %d are accepted", len(s.Subnets), MaxSubnets))
		return g, errors.Join(errs...)
	}
	for _, text := range s.Subnets {
		p, err := ParseCIDR(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("subnet %w", err))
			continue
		}
		g.Subnets = append(g.Subnets, p)
	}
	slices.SortFunc(g.Subnets, netip.Prefix.Compare)
	g.Subnets = slices.Compact(g.Subnets)
	if g.Returned, err = ParseReturned(s.AllocatedIPs, g.Subnets); err != nil {
		errs = append(errs, err)
	}
	return g, errors.Join(errs...)
}

// AnnouncedOctets returns the octets of a gateway, also of one that Parse has returned with an
// error, as far as it was not about these.
func (g Gateway) AnnouncedOctets() (Octets, bool) {
	if _, told := g.Config[submarinerv1.BackendOctets]; told {
		return g.Octets, g.Octets.usable()
	}
	if !g.PrivateIP.IsValid() {
		return Octets{}, false
	}
	return OctetsOf(g.PrivateIP), true
}

// maxDrivers is the maximum number of drivers that are read from an endpoint.
const maxDrivers = 16

// offered returns the drivers that an endpoint offers: the drivers in its list, even if its
// default is not among them; without a list, only its default.
func offered(s submarinerv1.EndpointSpec) []string {
	list, listed := s.BackendConfig[submarinerv1.BackendDrivers]
	if !listed {
		list = s.Backend
	}
	all := strings.Split(list, ",")
	var out []string
	for _, name := range all[:min(len(all), maxDrivers)] {
		if name = Canonical(name); name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// Port returns the UDP port that a gateway announces under a key of its Config; def if there is
// none.
func (g Gateway) Port(key string, def int) (int, error) {
	text, ok := g.Config[key]
	if !ok {
		return def, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 65535 {
		return 0, fmt.Errorf("its %s %.80q is not a UDP port from 1 to 65535", key, text)
	}
	return n, nil
}

// parseShare returns the weight that a gateway announces, and how far it has got on its way out of
// service.
func parseShare(config map[string]string) (weight int, drain Drain, err error) {
	var errs []error
	if text, ok := config[submarinerv1.BackendWeight]; ok {
		if weight, err = strconv.Atoi(text); err != nil || weight < 1 || weight > MaxWeight {
			weight = 0
			err = fmt.Errorf("its %s %.80q is not a whole number from 1 to %d", submarinerv1.BackendWeight, text,
				MaxWeight)
			errs = append(errs, err)
		}
	}
	text := config[submarinerv1.BackendDrain]
	drain, ok := ParseDrain(text)
	if !ok {
		errs = append(
			errs,
			fmt.Errorf("its %s %.80q is none of %s, %s and %s", submarinerv1.BackendDrain, text, Draining, Drained,
				Standby),
		)
	}
	return weight, drain, errors.Join(errs...)
}

// ParseHost parses an IPv4 address. It returns an error for an address in a reserved network.
func ParseHost(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return a, errors.New("not an IP address")
	}
	if !a.Is4() {
		return netip.Addr{}, errors.New("not an IPv4 address")
	}
	if r := reservedNet(prefix.Host(a)); r != "" {
		return netip.Addr{}, fmt.Errorf("in %s", r)
	}
	return a, nil
}

// CheckRemote returns an error, joined of all conflicts, if a remote gateway conflicts with
// our cluster or with itself. The networks that it announces must not overlap our networks
// and nodes, and must not contain its own addresses, since the cable's packets
// would be routed into the cable. Its addresses must be outside our networks, since otherwise
// a pod here could impersonate a gateway.
func CheckRemote(g Gateway, own Networks) error {
	var errs []error
	for _, s := range g.Subnets {
		for _, p := range own.Pods {
			if s.Overlaps(p) {
				errs = append(errs, fmt.Errorf("subnet %v overlaps this cluster's pod network %v", s, p))
			}
		}
		for _, p := range own.Services {
			if s.Overlaps(p) {
				errs = append(errs, fmt.Errorf("subnet %v overlaps this cluster's Service network %v", s, p))
			}
		}
		for _, p := range own.Global {
			if s.Overlaps(p) {
				errs = append(errs, fmt.Errorf("subnet %v overlaps this cluster's global network %v", s, p))
			}
		}
		for _, n := range own.Nodes {
			if s.Contains(n) {
				errs = append(errs, fmt.Errorf("subnet %v contains %v, a node of this cluster", s, n))
				break
			}
		}
		for _, p := range own.Needed {
			if s.Overlaps(p) {
				errs = append(errs,
					fmt.Errorf("subnet %v overlaps %v, which the nodes of this cluster need to reach", s, p))
			}
		}
		if s.Contains(g.PrivateIP) {
			errs = append(errs, fmt.Errorf("subnet %v contains its own private IP %v", s, g.PrivateIP))
		}
		if g.PublicIP.IsValid() && s.Contains(g.PublicIP) {
			errs = append(errs, fmt.Errorf("subnet %v contains its own public IP %v", s, g.PublicIP))
		}
	}
	for _, a := range []struct {
		what string
		ip   netip.Addr
	}{{"private", g.PrivateIP}, {"public", g.PublicIP}} {
		if slices.Contains(own.Nodes, a.ip) {
			errs = append(errs, fmt.Errorf("%s IP %v belongs to a node of this cluster: give one of the two another "+
				"address, or make another node the gateway there", a.what, a.ip))
		}
		for _, nets := range [][]netip.Prefix{own.Services, own.Pods, own.Global} {
			for _, p := range nets {
				if p.Contains(a.ip) {
					errs = append(errs, fmt.Errorf("%s IP %v is in this cluster's network %v", a.what, a.ip, p))
				}
			}
		}
	}
	if g.HealthIP.IsValid() &&
		!prefix.Contains(g.Subnets, g.HealthIP) {
		errs = append(errs, fmt.Errorf("health check IP %v is in none of its subnets", g.HealthIP))
	}
	return errors.Join(errs...)
}

// minBits is the prefix length of the largest network that a cluster may have: a /8, the
// largest network for private use (RFC 1918).
const minBits = 8

// ParseCIDR parses a network that a cluster may have, in CIDR notation, such as 10.1.0.0/16: see
// CheckNetwork.
func ParseCIDR(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("%.80q is not a network in CIDR notation, such as 10.1.0.0/16", text)
	}
	return p, CheckNetwork(p)
}

// CheckNetwork returns an error for a network that no cluster may have: it is not IPv4, has host
// bits, is larger than a /8, or overlaps a reserved network.
func CheckNetwork(p netip.Prefix) error {
	switch {
	case !p.Addr().Is4():
		return fmt.Errorf("%v is not an IPv4 network", p)
	case p != p.Masked():
		return fmt.Errorf("%v has host bits set: did you mean %v?", p, p.Masked())
	case p.Bits() < minBits:
		return fmt.Errorf("%v is larger than any cluster: at most a /%d is accepted", p, minBits)
	}
	if r := reservedNet(p); r != "" {
		return fmt.Errorf("%v overlaps %s", p, r)
	}
	return nil
}

// ParseCIDRs parses a list of IPv4 networks: see ParseCIDR. The error contains every
// mistake; what names the list in it, such as "--clustercidr".
func ParseCIDRs(what string, list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	var errs []error
	for _, s := range list {
		p, err := ParseCIDR(strings.TrimSpace(s))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
			continue
		}
		out = append(out, p)
	}
	return out, errors.Join(errs...)
}
