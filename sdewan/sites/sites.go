// Package sites makes the IPsec tunnels of a company out of a list of its sites: each branch has
// a tunnel to each hub, with a key and identities of this pair. It only makes objects: nothing is
// applied.
package sites

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"subctl/internal/prefix"
)

// MaxSites is the number of sites that a list may have: the objects of a hub with so many branches
// stay within the limits of a CNF.
const MaxSites = 500

// List is the list of sites, as users write it.
type List struct {
	// Hubs wait for tunnels at an address that branches reach.
	Hubs []Site `json:"hubs"`
	// Branches begin tunnels to all hubs.
	Branches []Site `json:"branches"`
	// BetweenBranches lets branches reach each other, through a hub. With several hubs it would not
	// be decided which, so that there may be only one.
	BetweenBranches bool `json:"betweenBranches,omitempty"`
}

// Site is a CNF with the networks behind it.
type Site struct {
	// Name is a DNS label, and the identity of the site in IPsec.
	Name string `json:"name"`
	// Address is for hubs: the IPv4 address, or DNS name, that branches reach.
	Address string `json:"address,omitempty"`
	// Networks are the IPv4 networks behind the CNF.
	Networks []string `json:"networks"`
	// Namespace is that of the CNF. The default is "default".
	Namespace string `json:"namespace,omitempty"`
	// Purpose is the CNF's label sdewanPurpose. The default is the name of the site.
	Purpose string `json:"purpose,omitempty"`
	// Policy is for branches: the Mwan3Policy whose uplinks the packets of tunnels take. By default
	// they take the network of the cluster.
	Policy string `json:"policy,omitempty"`

	networks []netip.Prefix
}

// Parse reads a list in YAML or JSON, and returns all its mistakes.
func Parse(text []byte) (List, error) {
	var l List
	if err := yaml.UnmarshalStrict(text, &l); err != nil {
		return List{}, fmt.Errorf("not a list of sites: %w", err)
	}
	var errs []error
	if len(l.Hubs) == 0 || len(l.Branches) == 0 {
		errs = append(errs, errors.New("hubs and branches must have a site each"))
	}
	if n := len(l.Hubs) + len(l.Branches); n > MaxSites {
		errs = append(errs, fmt.Errorf("there are %d sites, and may be %d", n, MaxSites))
	}
	if l.BetweenBranches && len(l.Hubs) > 1 {
		errs = append(errs, errors.New("betweenBranches needs a single hub, through which branches reach each other"))
	}
	owners := map[netip.Prefix]string{}
	names := map[string]bool{}
	for i := range l.Hubs {
		errs = append(errs, l.Hubs[i].check(fmt.Sprintf("hubs[%d]", i), true, names, owners)...)
	}
	for i := range l.Branches {
		errs = append(errs, l.Branches[i].check(fmt.Sprintf("branches[%d]", i), false, names, owners)...)
	}
	for i, branch := range l.Branches {
		for _, hub := range l.Hubs {
			if _, err := netip.ParseAddr(hub.Address); branch.Policy != "" && err != nil {
				errs = append(errs, fmt.Errorf(
					"branches[%d]: policy needs hubs with IPv4 addresses, by which the rule knows their packets: %s has %q",
					i, hub.Name, hub.Address))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return List{}, err
	}
	return l, nil
}

// check returns the mistakes of a site, and fills in what it does not say. names has the names of
// the sites before it, owners the sites of their networks.
func (s *Site) check(at string, hub bool, names map[string]bool, owners map[netip.Prefix]string) (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(at+": "+format, args...)) }
	if s.Namespace == "" {
		s.Namespace = "default"
	}
	if s.Purpose == "" {
		s.Purpose = s.Name
	}
	if why := validation.IsDNS1123Label(s.Name); why != nil {
		bad("name %.60q: %s", s.Name, strings.Join(why, "; "))
	}
	if names[s.Name] {
		bad("name %q: another site has it", s.Name)
	}
	names[s.Name] = true
	if why := validation.IsDNS1123Label(s.Namespace); why != nil {
		bad("namespace %.60q: %s", s.Namespace, strings.Join(why, "; "))
	}
	if why := validation.IsValidLabelValue(s.Purpose); why != nil {
		bad("purpose %.60q: %s", s.Purpose, strings.Join(why, "; "))
	}
	if why := validation.IsDNS1123Subdomain(s.Policy); s.Policy != "" && why != nil {
		bad("policy %.60q: %s", s.Policy, strings.Join(why, "; "))
	}
	ip, errIP := netip.ParseAddr(s.Address)
	switch {
	case !hub && s.Address != "":
		bad("address is for hubs: a branch begins its tunnels, from any address")
	case !hub:
	case s.Policy != "":
		bad("policy is for branches: a hub answers through the uplink by which it was asked")
	case errIP == nil && !ip.Is4(), errIP != nil && validation.IsDNS1123Subdomain(s.Address) != nil:
		bad("address %.60q must be an IPv4 address or a DNS name that branches reach", s.Address)
	}
	if len(s.Networks) == 0 {
		bad("networks must have a network behind the site")
	}
	for _, text := range s.Networks {
		n, err := prefix.Parse(text)
		if err != nil || !n.Addr().Is4() || n != n.Masked() || n.Bits() == 0 {
			bad("networks: %.60q must be an IPv4 network such as 192.168.1.0/24", text)
			continue
		}
		for other, owner := range owners {
			if other.Overlaps(n) {
				bad("networks: %s overlaps %s of %s", n, other, owner)
			}
		}
		owners[n] = at
		s.networks = append(s.networks, n)
	}
	return errs
}
