package look

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/services"
)

// RefusedServices returns which export records of other clusters, or parts of them, the cluster does not
// import. The agent of service discovery decides that with the same function. It takes a second where
// there are thousands, so it is called once.
func (s Site) RefusedServices() []services.Refusal {
	if s.Services == nil || s.Members == nil {
		return nil
	}
	s.Services.once.Do(func() { s.Services.refused = services.Import(s.servicesView()).Refused })
	return s.Services.refused
}

// servicesView returns what the cluster sees of exported Services, except for what only matters to
// endpoints: zones, and which clusters are reachable.
func (s Site) servicesView() services.View {
	spec := s.Submariner.Spec
	v := services.View{
		ClusterID:  s.Name,
		Namespaces: map[string]bool{},
		Imports:    pointers(s.Services.Imports),
		Services:   pointers(s.Services.Services),
		Slices:     pointers(s.Services.Slices),
	}
	if d := spec.ServiceDiscovery; d != nil {
		v.Rules = d.Imports
		v.Direct = d.Direct
	}
	for i := range s.Services.Namespaces {
		v.Namespaces[s.Services.Namespaces[i].Name] = s.Services.Namespaces[i].DeletionTimestamp == nil
	}
	for _, list := range []string{spec.ClusterCIDR, spec.ServiceCIDR, spec.GlobalCIDR} {
		v.Forbidden = append(v.Forbidden, prefixes(strings.Split(list, ","))...)
	}
	for i := range s.Nodes {
		for _, a := range s.Nodes[i].Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				v.Forbidden = append(v.Forbidden, netip.PrefixFrom(ip, ip.BitLen()))
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.Members.Clusters)) {
		if id == s.Name {
			continue
		}
		c := s.Members.Clusters[id].Spec
		v.Members = append(v.Members, services.Member{
			ID: id, Pages: s.Services.pagesOf(id), PodNetworks: prefixes(c.ClusterCIDR),
			ServiceNetworks: prefixes(c.ServiceCIDR), GlobalNetworks: prefixes(c.GlobalCIDR),
		})
	}
	for _, page := range s.Services.pagesOf("") {
		v.Own = append(v.Own, page.Spec.Services...)
	}
	slices.SortFunc(v.Own, func(a, b v1alpha1.ExportedService) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return v
}

// pagesOf returns the pages of another cluster, or with an empty ID those of the cluster itself.
func (s *Services) pagesOf(id string) (out []*v1alpha1.ExportedServices) {
	for i := range s.Pages {
		if owner, copied := submarinerv1.OwnerID(&s.Pages[i]); owner == id && copied == (id != "") {
			out = append(out, &s.Pages[i])
		}
	}
	return out
}

// prefixes parses networks, and skips what is none.
func prefixes(texts []string) (out []netip.Prefix) {
	for _, text := range texts {
		if p, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// pointers returns pointers to the elements of a list.
func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}
