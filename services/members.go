package services

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"subctl/api/submariner/v1alpha1"
)

// claim is an accepted record: a cluster claims to export a Service.
type claim struct {
	cluster string
	record  *v1alpha1.ExportedService
	// own reports whether the cluster is this one.
	own bool
	// unreachable and unknown are those of the Member.
	unreachable, unknown bool
	// kept reports that the page of the record is missing. The record is read back from the
	// ServiceImport, and the EndpointSlices of the cluster stay as they are.
	kept bool
}

// readRecords reads the records of all clusters, and checks those of others. Rules restrict what
// other clusters serve: what this cluster exports, it always imports, as the API has it.
func (i *importer) readRecords() {
	i.claims = make(map[types.NamespacedName][]claim, len(i.held.imports))
	for n := range i.Own {
		record := &i.Own[n]
		key := nameOf(record)
		if !i.Namespaces[record.Namespace] || slices.ContainsFunc(i.claims[key], func(c claim) bool { return c.own }) {
			continue // The namespace is being deleted, or the record is there twice.
		}
		i.claims[key] = append(i.claims[key], claim{cluster: i.ClusterID, record: record, own: true})
	}
	d := newDoor(i.View)
	for n := range i.Members {
		if m := &i.Members[n]; m.ID != i.ClusterID {
			i.readMember(m, d)
		}
	}
	i.keepRecords()
}

// readMember reads the records of a member from its pages. If a record is in several, the one in
// the lowest page counts.
func (i *importer) readMember(m *Member, d *door) {
	pages, complete := readPages(m)
	networks := newNetworks(m)
	if networks.none() {
		for _, p := range pages {
			for n := range p.Spec.Services {
				i.refuse(m.ID, nameOf(&p.Spec.Services[n]), "waiting until the cluster announces networks")
			}
		}
		pages = nil // Addresses cannot be checked. Until they can, nothing changes.
		complete = false
	}
	seen := map[types.NamespacedName]bool{}
	for _, p := range pages {
		for n := range p.Spec.Services {
			record := &p.Spec.Services[n]
			key := nameOf(record)
			reason := d.check(m.ID, record, networks)
			if seen[key] {
				reason = "the cluster exports it twice"
			}
			seen[key] = true
			if reason != "" {
				i.refuse(m.ID, key, reason)
				continue
			}
			i.claims[key] = append(i.claims[key], claim{
				cluster: m.ID, record: record, unreachable: m.Unreachable, unknown: m.Unknown,
			})
		}
	}
	if complete {
		return
	}
	for key := range i.held.sources()[m.ID] {
		if seen[key] || d.admits(m.ID, key) != "" {
			continue
		}
		if reason := i.checkKept(d, m.ID, key, networks); reason != "" {
			i.refuse(m.ID, key, reason)
		} else {
			i.claims[key] = append(i.claims[key], claim{
				cluster:     m.ID,
				unreachable: m.Unreachable,
				unknown:     m.Unknown,
				kept:        true,
			})
		}
	}
}

// readPages returns the pages of a member by number, and reports whether they are complete: all are
// there, and agree on how many there are. Otherwise the highest count is the one that counts.
func readPages(m *Member) (pages []*v1alpha1.ExportedServices, complete bool) {
	count := 0
	numbered := map[int]*v1alpha1.ExportedServices{}
	for _, p := range m.Pages {
		n, ok := v1alpha1.ExportedServicesPage(m.ID, p.Name)
		if !ok || p.Spec.ClusterID != m.ID {
			continue
		}
		numbered[n] = p
		count = max(count, min(p.Spec.Pages, v1alpha1.MaxExportPages))
	}
	complete = len(numbered) > 0
	for n := range count {
		p, ok := numbered[n]
		if !ok {
			complete = false
			continue
		}
		complete = complete && p.Spec.Pages == count
		pages = append(pages, p)
	}
	return pages, complete
}

// allUnreachable reports whether all other clusters that have endpoints are unreachable.
func (i *importer) allUnreachable() bool {
	unreachable := false
	for _, claims := range i.claims {
		for _, c := range claims {
			switch {
			case c.own || !c.kept && c.record.Address == "" && len(c.record.Endpoints) == 0:
			case !c.unreachable:
				return false
			default:
				unreachable = true
			}
		}
	}
	return unreachable
}

func nameOf(r *v1alpha1.ExportedService) types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}
