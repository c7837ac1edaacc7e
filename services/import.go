package services

import (
	"cmp"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
)

// Import decides what the cluster's API server should hold of the Services that clusters export.
//
// Records are read (members.go), checked (check.go), bounded (bound.go) and merged (merge.go). Of
// each imported Service one ServiceImport, one derived Service (objects.go) and EndpointSlices
// (slices.go) are wanted. The result is the difference to what is here (held.go).
//
// It converges: the results of a few calls, each applied, leave nothing to do.
func Import(v View) Imported {
	i := &importer{View: v, held: hold(v)}
	i.readRecords()
	i.bound()
	i.localFault = i.allUnreachable()
	i.out.Conflicts = map[types.NamespacedName]Conflict{}
	i.planAll()
	i.deleteOrphans()
	slices.SortStableFunc(i.out.Refused, func(a, b Refusal) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), compareNames(a.Service, b.Service))
	})
	return i.out
}

// foreignImport is why a Service is not imported under a name that is taken.
const foreignImport = "a ServiceImport of this name exists that subctl has not made: delete it to import the Service"

// importer is Import at work.
type importer struct {
	View
	held held
	// claims are the accepted records of all clusters, by Service.
	claims map[types.NamespacedName][]claim
	// localFault reports that all other clusters look unreachable. The fault is more likely here.
	localFault bool
	out        Imported
}

// keys returns the names of all Services that are exported, or that were imported.
func (i *importer) keys() []types.NamespacedName {
	all := make(map[types.NamespacedName]bool, len(i.claims))
	for key := range i.claims {
		all[key] = true
	}
	for key := range i.held.imports {
		all[key] = true
	}
	for key := range i.held.slices {
		all[key] = true
	}
	return slices.SortedFunc(maps.Keys(all), compareNames)
}

// plan adds to the result what one Service needs. It reports whether that depends on nothing but
// what settled has. Whether an import is young has no effect if there is nothing to do: then it
// lists its exporters in the order which decides later.
func (i *importer) plan(key types.NamespacedName) (sure bool) {
	have := i.held.imports[key]
	claims := i.claims[key]
	switch {
	case have != nil && !isOurs(have):
		for _, c := range claims {
			i.refuse(c.cluster, key, foreignImport)
		}
		i.deleteSlices(key, nil)
		return false
	case have != nil && have.DeletionTimestamp != nil:
		return false // It is made anew when it is gone.
	case len(claims) == 0:
		i.remove(key)
		return false
	}

	m := mergeClaims(key, claims, have, i.Now)
	if m.conflict.Reasons != nil {
		i.out.Conflicts[key] = m.conflict
	}
	for _, c := range m.losers {
		i.refuse(c.cluster, key, m.lost(c))
	}
	state := i.derive(m, have)
	want := wantImport(m, state, i.Direct)
	if have == nil || !sameImport(have, want) {
		i.out.Imports = append(i.out.Imports, want)
	}
	if have == nil {
		return false // Service and slices need the UID of their owner.
	}
	free := false
	if len(state.taken) > 0 { // Endpoints would be those of somebody else's Service.
		i.deleteSlices(key, nil)
	} else {
		state.taken, free = i.planSlices(m, have)
	}
	if status := wantStatus(have, m, state); status != nil {
		i.out.Statuses = append(i.out.Statuses, status)
	}
	return free
}

// derive adds the derived Service of an import to the result, and returns how far it is.
func (i *importer) derive(m *merged, have *mcsv1alpha1.ServiceImport) derived {
	name := types.NamespacedName{Namespace: m.key.Namespace, Name: DerivedName(m.key)}
	service := i.held.services[name]
	d := derived{name: name.Name}
	if have == nil {
		return d
	}
	switch {
	case m.headless():
		if service != nil && ownedBy(service, have) && service.DeletionTimestamp == nil {
			i.out.Delete = append(i.out.Delete, service)
		}
	case service == nil:
		i.out.Services = append(i.out.Services, wantService(m, have))
	case service.DeletionTimestamp != nil, i.held.orphan(service):
		// deleteOrphans, or somebody else, deletes it. Then the name is free.
	case !ownedBy(service, have):
		d.taken = append(d.taken, "Service "+name.Name)
	case spoiled(service):
		i.out.Delete = append(i.out.Delete, service)
	default:
		d.address = clusterIPOf(service)
		if want := wantService(m, have); !sameService(service, want) {
			i.out.Services = append(i.out.Services, want)
		}
	}
	return d
}

// planSlices adds the EndpointSlices of an import to the result, and returns the names of those
// that somebody else has taken. free reports whether objects that no import lists have none of
// their names.
func (i *importer) planSlices(m *merged, have *mcsv1alpha1.ServiceImport) (taken []string, free bool) {
	free = true
	kept := map[string]bool{}
	wanted := map[string]bool{}
	current := map[string]*discoveryv1.EndpointSlice{}
	for _, s := range i.held.slices[m.key] {
		current[s.Name] = s
	}
	for _, want := range i.wantSlices(m, have) {
		wanted[want.Name] = true
		is := current[want.Name]
		if is == nil {
			is = i.held.unlabeled[keyOf(want)]
			free = free && is == nil
		}
		switch {
		case is == nil:
			i.out.Slices = append(i.out.Slices, want)
		case !isOurSlice(is):
			taken = append(taken, "EndpointSlice "+is.Name)
		case is.DeletionTimestamp != nil:
		case is.AddressType != want.AddressType: // It cannot be changed.
			delete(wanted, want.Name)
		case !sameSlice(is, want):
			i.out.Slices = append(i.out.Slices, want)
		}
	}
	for _, c := range m.exporters {
		kept[c.cluster] = c.kept
	}
	i.deleteSlices(m.key, func(s *discoveryv1.EndpointSlice) bool {
		return wanted[s.Name] || kept[s.Labels[mcsv1alpha1.LabelSourceCluster]]
	})
	return taken, free
}

// remove deletes all that is ours of an import that no cluster exports.
func (i *importer) remove(key types.NamespacedName) {
	have := i.held.imports[key]
	if have != nil {
		i.out.Delete = append(i.out.Delete, have)
		service := i.held.services[types.NamespacedName{Namespace: key.Namespace, Name: DerivedName(key)}]
		if service != nil && ownedBy(service, have) && service.DeletionTimestamp == nil {
			i.out.Delete = append(i.out.Delete, service)
		}
	}
	i.deleteSlices(key, nil)
}

// deleteSlices deletes our EndpointSlices of an import, except those to keep.
func (i *importer) deleteSlices(key types.NamespacedName, keep func(*discoveryv1.EndpointSlice) bool) {
	for _, s := range i.held.slices[key] {
		if isOurSlice(s) && s.DeletionTimestamp == nil && (keep == nil || !keep(s)) {
			i.out.Delete = append(i.out.Delete, s)
		}
	}
}

// deleteOrphans deletes derived Services whose ServiceImport is gone. Kubernetes does that too,
// later.
func (i *importer) deleteOrphans() {
	for _, s := range i.Services {
		if s.DeletionTimestamp == nil && i.held.orphan(s) {
			i.out.Delete = append(i.out.Delete, s)
		}
	}
}

func (i *importer) refuse(cluster string, service types.NamespacedName, reason string) {
	i.out.Refused = append(i.out.Refused, Refusal{Cluster: cluster, Service: service, Reason: reason})
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
