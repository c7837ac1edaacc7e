// Package discoverer is the role of the agent of service discovery: it reads what its cluster
// exports and what other clusters do, and writes what package services makes of it.
package discoverer

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/trust"
	"subctl/dataplane"
	"subctl/internal/prefix"
	"subctl/services"
)

// Role is the role of the agent of service discovery: it writes the pages of what its cluster
// exports, and makes ServiceImports, derived Services and EndpointSlices of what other clusters
// export. One agent of a cluster does so, on any node. It accesses no kernel.
func Role() role.Role {
	return role.Role{
		Name: "services", MetricsPort: dataplane.ServicesMetricsPort, ProbePort: dataplane.ServicesProbePort,
		Resync: time.Minute,
		Watches: []role.Object{
			&v1alpha1.Submariner{},
			&submarinerv1.Cluster{},
			&submarinerv1.Gateway{},
			&corev1.Node{},
			&corev1.Namespace{},
			&corev1.Service{},
			&discoveryv1.EndpointSlice{},
			&mcsv1alpha1.ServiceExport{},
			&mcsv1alpha1.ServiceImport{},
			&v1alpha1.ExportedServices{},
			&submarinerv1.GlobalIngressIP{},
		},
		Slim:   slimForServices,
		Parts:  []role.Part{role.Discoverer, role.ClusterDNS},
		Plan:   planServices,
		Report: reportServices,
	}
}

// ServicePlan holds the decisions of the agent of service discovery.
type ServicePlan struct {
	Memory ServiceMemory

	// pages are the pages that the cluster should have, and spare are its other pages.
	pages []*v1alpha1.ExportedServices
	spare []*v1alpha1.ExportedServices
	// exports are the results for ServiceExports. Without conditions, they lose ours.
	exports []services.Exported
	global  bool

	imported services.Imported
}

// ServiceMemory is what one plan of service discovery hands to the next, as Snapshot.Previous.
type ServiceMemory struct {
	// Reach and Contact are what is known of connections to other clusters, and to the broker.
	Reach   Reach
	Contact Contact
	// Settled are the imports for which there was nothing to do. The plan is the same without it.
	Settled services.Settled
}

// planServices decides what the cluster exports, and what it imports. The kernel of the node holds
// nothing of it.
func planServices(s role.Snapshot) (role.Plan, error) {
	sub := s.Submariner()
	if sub == nil {
		return role.Plan{}, role.ErrNotJoined
	}
	d := &ServicePlan{global: sub.Spec.GlobalCIDR != ""}
	p := role.Plan{State: dataplane.State{}, Decisions: d}
	if sub.DeletionTimestamp != nil || !sub.Spec.ServiceDiscoveryEnabled {
		d.leave(s, sub.Spec.ClusterID)
		return p, nil
	}
	own, err := serviceNetworksOf(s, sub)
	if err != nil {
		return role.Plan{}, err
	}
	p.Again = d.discover(s, sub, own)
	return p, nil
}

// discover fills in what the cluster exports and imports, and returns Plan.Again.
func (d *ServicePlan) discover(s role.Snapshot, sub *v1alpha1.Submariner, own serviceNetworks) (again time.Duration) {
	previous, _ := s.Previous.(ServiceMemory)
	spec := sub.Spec
	var settings v1alpha1.ServiceDiscoverySpec
	if spec.ServiceDiscovery != nil {
		settings = *spec.ServiceDiscovery
	}
	members := membersOf(s, spec.ClusterID)
	d.Memory.Reach, again = previous.Reach.next(s, members)
	for i := range members {
		is, known := d.Memory.Reach[members[i].ID]
		members[i].Unreachable = is.unreachable
		members[i].Unknown = !known
	}
	var contact services.Contact
	var contactAgain time.Duration
	contact, d.Memory.Contact, contactAgain = previous.Contact.next(s)
	again = soonest(again, contactAgain)
	source := services.Source{
		ClusterID:       spec.ClusterID,
		Exports:         role.List[*mcsv1alpha1.ServiceExport](s),
		Services:        role.List[*corev1.Service](s),
		Slices:          role.List[*discoveryv1.EndpointSlice](s),
		GlobalNetworks:  own.global,
		Ingress:         role.List[*submarinerv1.GlobalIngressIP](s),
		Published:       ownPages(s, spec.ClusterID),
		PodNetworks:     own.pods,
		ServiceNetworks: own.services,
		Readers:         len(members),
		MayExport:       func(namespace string) bool { return trust.MayExport(settings.ExportNamespaces, namespace) },
	}
	d.exports = services.Export(source)
	view := services.View{
		ClusterID:  spec.ClusterID,
		Now:        s.Now,
		Members:    members,
		Contact:    contact,
		Namespaces: namespacesOf(s),
		Forbidden:  own.forbidden(s),
		Zones:      zonesOf(s),
		Hints:      followsHints(sub),
		Rules:      settings.Imports,
		Direct:     settings.Direct,
		MaxImports: maxImports(own.services),
		MayExport:  func(namespace string) bool { return mayImport(settings, namespace) },
		Settled:    previous.Settled,
		Imports:    role.List[*mcsv1alpha1.ServiceImport](s),
		Services:   source.Services,
		Slices:     source.Slices,
	}
	var records []v1alpha1.ExportedService
	for _, e := range d.exports {
		if e.Record != nil {
			records = append(records, *e.Record)
			view.Own = append(view.Own, *e.Local)
		}
	}
	d.imported = services.Import(view)
	d.Memory.Settled = d.imported.Settled
	left := d.paginate(spec.ClusterID, source.Published, records)
	services.Conclude(d.exports, d.imported.Conflicts, left, source.Published)
	return again
}

// maxImports returns how many Services may be imported: each takes a cluster IP, and half of the
// addresses are left for other Services.
func maxImports(networks []netip.Prefix) int {
	most := 0
	for n, network := range networks {
		if network.Addr().Is4() && !slices.Contains(networks[:n], network) {
			most += 1 << (32 - network.Bits()) / 2
		}
	}
	if len(networks) == 0 {
		most = services.MaxImports
	}
	return max(1, min(most, services.MaxImports))
}

// mayImport reports whether Services of a namespace may be imported: from the namespaces of
// Kubernetes, of OpenShift and of subctl only if the settings of this cluster name them.
func mayImport(settings v1alpha1.ServiceDiscoverySpec, namespace string) bool {
	named := slices.DeleteFunc(settings.NamedNamespaces(), func(p string) bool { return !trust.IsReserved(p) })
	return trust.MayExport(nil, namespace) || len(named) > 0 && trust.MayExport(named, namespace)
}

// paginate puts records into pages, given those that the cluster has, and returns the Services
// whose records have no room.
func (d *ServicePlan) paginate(
	clusterID string, have []*v1alpha1.ExportedServices, records []v1alpha1.ExportedService,
) (left []types.NamespacedName) {
	d.pages, left = services.Pages(clusterID, have, records)
	wanted := map[string]bool{}
	for _, page := range d.pages {
		wanted[page.Name] = true
	}
	d.spare = slices.DeleteFunc(slices.Clone(have),
		func(page *v1alpha1.ExportedServices) bool { return wanted[page.Name] })
	return left
}

// leave ends what the cluster exports and imports. An empty page remains, so that no other cluster
// takes older pages for the present ones.
func (d *ServicePlan) leave(s role.Snapshot, clusterID string) {
	d.paginate(clusterID, ownPages(s, clusterID), nil)
	for _, e := range role.List[*mcsv1alpha1.ServiceExport](s) {
		d.exports = append(d.exports, services.Exported{Export: e})
	}
	for _, e := range role.List[*discoveryv1.EndpointSlice](s) {
		if e.Labels[discoveryv1.LabelManagedBy] == services.ManagedBy {
			d.imported.Delete = append(d.imported.Delete, e)
		}
	}
	for _, v := range role.List[*corev1.Service](s) {
		if v.Labels[mcsv1alpha1.LabelServiceName] != "" && role.IsOurs(v) {
			d.imported.Delete = append(d.imported.Delete, v)
		}
	}
	for _, i := range role.List[*mcsv1alpha1.ServiceImport](s) {
		if role.IsOurs(i) {
			d.imported.Delete = append(d.imported.Delete, i)
		}
	}
	d.imported.Delete = slices.DeleteFunc(d.imported.Delete, isBeingDeleted)
}

// ownPages returns the pages of this cluster, with and without the label of copies.
func ownPages(s role.Snapshot, clusterID string) []*v1alpha1.ExportedServices {
	return slices.DeleteFunc(role.List[*v1alpha1.ExportedServices](s), func(page *v1alpha1.ExportedServices) bool {
		_, is := v1alpha1.ExportedServicesPage(clusterID, page.Name)
		return !is || submarinerv1.IsCopy(page) || page.DeletionTimestamp != nil
	})
}

// membersOf returns the other clusters whose Cluster objects are here, with copies of their pages.
func membersOf(s role.Snapshot, clusterID string) []services.Member {
	pages := map[string][]*v1alpha1.ExportedServices{}
	for _, page := range role.List[*v1alpha1.ExportedServices](s) {
		if submarinerv1.IsCopy(page) && page.Labels[submarinerv1.ClusterIDLabel] == page.Spec.ClusterID {
			pages[page.Spec.ClusterID] = append(pages[page.Spec.ClusterID], page)
		}
	}
	routed := routedNetworks(s)
	var out []services.Member
	for _, c := range role.List[*submarinerv1.Cluster](s) {
		id := c.Spec.ClusterID
		if id == clusterID || c.Labels[submarinerv1.ClusterIDLabel] != id {
			continue
		}
		out = append(out, services.Member{
			ID: id, Pages: pages[id],
			PodNetworks: prefix.Valid(c.Spec.ClusterCIDR), ServiceNetworks: prefix.Valid(c.Spec.ServiceCIDR),
			GlobalNetworks: prefix.Valid(c.Spec.GlobalCIDR), Routed: routed[id],
		})
	}
	return out
}

// serviceNetworks are the networks of this cluster.
type serviceNetworks struct{ pods, services, global []netip.Prefix }

// serviceNetworksOf returns the networks of this cluster: the networks that its Submariner has, and
// those that its Cluster object announces in addition.
func serviceNetworksOf(s role.Snapshot, sub *v1alpha1.Submariner) (serviceNetworks, error) {
	joined, err := role.OwnNetworks(sub.Spec)
	if err != nil {
		return serviceNetworks{}, err
	}
	n := serviceNetworks{pods: joined.Pods, services: joined.Services, global: joined.Global}
	for _, c := range role.List[*submarinerv1.Cluster](s) {
		if c.Name == sub.Spec.ClusterID && !submarinerv1.IsCopy(c) {
			n.pods = append(n.pods, prefix.Valid(c.Spec.ClusterCIDR)...)
			n.services = append(n.services, prefix.Valid(c.Spec.ServiceCIDR)...)
		}
	}
	return n, nil
}

// forbidden returns where no other cluster has endpoints: in the networks of this cluster, at its
// nodes, and at its API servers.
func (n serviceNetworks) forbidden(s role.Snapshot) []netip.Prefix {
	out := slices.Concat(n.pods, n.services, n.global)
	for _, node := range role.List[*corev1.Node](s) {
		for _, a := range node.Status.Addresses {
			out = appendAddress(out, a.Address)
		}
	}
	for _, slice := range role.List[*discoveryv1.EndpointSlice](s) {
		if slice.Namespace != metav1.NamespaceDefault || slice.Name != apiServers {
			continue
		}
		for _, e := range slice.Endpoints {
			for _, a := range e.Addresses {
				out = appendAddress(out, a)
			}
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// apiServers is the name of the EndpointSlice in which API servers list their addresses.
const apiServers = "kubernetes"

func appendAddress(to []netip.Prefix, text string) []netip.Prefix {
	if ip, err := netip.ParseAddr(text); err == nil {
		to = append(to, prefix.Host(ip))
	}
	return to
}

// namespacesOf returns the names of the namespaces in which objects can be made.
func namespacesOf(s role.Snapshot) map[string]bool {
	out := map[string]bool{}
	for _, n := range role.List[*corev1.Namespace](s) {
		out[n.Name] = n.DeletionTimestamp == nil
	}
	return out
}

// zonesOf returns the zones of the nodes, sorted; "" stands for nodes without one.
func zonesOf(s role.Snapshot) []string {
	var out []string
	for _, n := range role.List[*corev1.Node](s) {
		out = append(out, n.Labels[corev1.LabelTopologyZone])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// followsHints reports whether what stands for kube-proxy follows the zone hints of EndpointSlices.
// Cilium does so only with loadBalancer.serviceTopology, and OVN-Kubernetes does not.
func followsHints(sub *v1alpha1.Submariner) bool {
	return sub.Status.NetworkPlugin != v1alpha1.Cilium && sub.Status.NetworkPlugin != v1alpha1.OVNKubernetes
}

// RefusedServices returns which export records of other clusters, or parts of them, the cluster of
// a snapshot does not import. It is for commands, as refusals are stored nowhere. The snapshot
// needs only the EndpointSlices of imports.
func RefusedServices(s role.Snapshot) []services.Refusal {
	p, err := planServices(s)
	d, is := p.Decisions.(*ServicePlan)
	if err != nil || !is {
		return nil // the agent plans nothing, either, and reports why
	}
	return d.imported.Refused
}
