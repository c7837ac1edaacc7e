package sites

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/internal/prefix"
	"subctl/sdewan"
)

// Label is the label of all objects of a site, with the site's name.
const Label = "sdewan.subctl.io/site"

// Pair is a hub and a branch.
type Pair struct{ Hub, Branch string }

// Objects returns the rules of each site, by its name: those that others need come first. keys has
// a pre-shared key for each pair. An error is that a CNF would refuse them, such as for a list of
// networks that is too long.
func (l List) Objects(keys map[Pair]string) (map[string][]sdewan.Rule, error) {
	out := map[string][]sdewan.Rule{}
	for _, hub := range l.Hubs {
		out[hub.Name] = l.ofHub(hub, keys)
	}
	for _, branch := range l.Branches {
		out[branch.Name] = l.ofBranch(branch, keys)
	}
	var errs []error
	for _, site := range l.Sites() {
		for _, r := range out[site.Name] {
			if err := sdewan.Check(r); err != nil {
				errs = append(errs, fmt.Errorf("site %s: %s: %w", site.Name, r.GetName(), err))
			}
		}
	}
	return out, errors.Join(errs...)
}

// Keys returns the pre-shared keys in rules that Objects has returned for a site.
func (l List) Keys(site string, rules []sdewan.Rule) map[Pair]string {
	out := map[Pair]string{}
	pairs := l.Pairs()
	for _, r := range rules {
		if tunnel, ok := r.(*batch.IpsecSite); ok {
			for _, p := range []Pair{{site, tunnel.Spec.RemoteID}, {tunnel.Spec.RemoteID, site}} {
				if slices.Contains(pairs, p) {
					out[p] = tunnel.Spec.PreSharedKey
				}
			}
		}
	}
	return out
}

// Pairs returns all pairs of a hub and a branch.
func (l List) Pairs() (out []Pair) {
	for _, hub := range l.Hubs {
		for _, branch := range l.Branches {
			out = append(out, Pair{hub.Name, branch.Name})
		}
	}
	return out
}

// Sites returns all sites, hubs first.
func (l List) Sites() []Site { return append(append([]Site{}, l.Hubs...), l.Branches...) }

func (l List) ofHub(hub Site, keys map[Pair]string) []sdewan.Rule {
	out := []sdewan.Rule{hub.proposal()}
	for _, branch := range l.Branches {
		tunnel := hub.tunnel(branch, keys[Pair{hub.Name, branch.Name}])
		tunnel.Spec.Remote = "%any"
		tunnel.Spec.Connections[0].Mode = "add"
		tunnel.Spec.Connections[0].LocalSubnet = subnets(l.reachedBy(hub, branch))
		tunnel.Spec.Connections[0].RemoteSubnet = subnets(branch.networks)
		out = append(out, tunnel)
	}
	return out
}

func (l List) ofBranch(branch Site, keys map[Pair]string) []sdewan.Rule {
	out := []sdewan.Rule{branch.proposal()}
	for _, hub := range l.Hubs {
		if branch.Policy != "" {
			out = append(out, branch.uplinkRule(hub))
		}
		tunnel := branch.tunnel(hub, keys[Pair{hub.Name, branch.Name}])
		tunnel.Spec.Remote = hub.Address
		tunnel.Spec.Connections[0].Mode = "start"
		tunnel.Spec.Connections[0].LocalSubnet = subnets(branch.networks)
		tunnel.Spec.Connections[0].RemoteSubnet = subnets(l.reachedBy(hub, branch))
		out = append(out, tunnel)
	}
	return out
}

// reachedBy returns the networks that a branch reaches through a hub.
func (l List) reachedBy(hub, branch Site) []netip.Prefix {
	out := append([]netip.Prefix{}, hub.networks...)
	if !l.BetweenBranches {
		return out
	}
	for _, other := range l.Branches {
		if other.Name != branch.Name {
			out = append(out, other.networks...)
		}
	}
	return out
}

func subnets(networks []netip.Prefix) batch.Subnets { return batch.Subnets(prefix.Format(networks)) }

// The names of objects begin with that of their site, so that several sites may share a namespace.
func (s Site) proposalName() string { return s.Name + "-sites" }

// proposal returns the algorithms of all tunnels. RFC 8247 and RFC 8221 ask every implementation
// for AES and SHA-256, and recommend this group.
func (s Site) proposal() *batch.IpsecProposal {
	return &batch.IpsecProposal{
		TypeMeta:   metav1.TypeMeta{APIVersion: batch.GroupVersion.String(), Kind: "IpsecProposal"},
		ObjectMeta: s.meta(s.proposalName()),
		Spec:       batch.IpsecProposalSpec{Encryption: "aes256", Hash: "sha256", DHGroup: "ecp256"},
	}
}

// tunnel returns the tunnel to another site, without its networks and who begins it.
func (s Site) tunnel(to Site, key string) *batch.IpsecSite {
	return &batch.IpsecSite{
		TypeMeta:   metav1.TypeMeta{APIVersion: batch.GroupVersion.String(), Kind: "IpsecSite"},
		ObjectMeta: s.meta(s.Name + "-to-" + to.Name),
		Spec: batch.IpsecSiteSpec{
			IpsecRemote: batch.IpsecRemote{
				Auth:         "psk",
				PreSharedKey: key,
				LocalID:      s.Name,
				RemoteID:     to.Name,
				Proposals:    []batch.ObjectName{batch.ObjectName(s.proposalName())},
			},
			Connections: []batch.IpsecSiteConnection{{IpsecConnection: batch.IpsecConnection{
				ConnectionName: "networks",
				Type:           "tunnel",
				Proposals:      []batch.ObjectName{batch.ObjectName(s.proposalName())},
				LocalFirewall:  "yes",
			}}},
		},
	}
}

// uplinkRule leads the packets of the tunnel to a hub to the uplinks of a policy.
func (s Site) uplinkRule(hub Site) *batch.Mwan3Rule {
	return &batch.Mwan3Rule{
		TypeMeta:   metav1.TypeMeta{APIVersion: batch.GroupVersion.String(), Kind: "Mwan3Rule"},
		ObjectMeta: s.meta(s.Name + "-to-" + hub.Name),
		Spec: batch.Mwan3RuleSpec{
			Policy: batch.ObjectName(s.Policy),
			DestIP: batch.Address(hub.Address),
			Proto:  "all",
		},
	}
}

func (s Site) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: s.Namespace,
		Name:      name,
		Labels:    map[string]string{sdewan.PurposeLabel: s.Purpose, Label: s.Name},
	}
}
