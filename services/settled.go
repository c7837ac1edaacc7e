package services

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
)

// Settled are the imports for which the last Import found nothing to do, and nothing to say, with
// what that depends on. As long as it all is the same in memory, that is so: of 10,000 imports, one
// change concerns few.
type Settled struct {
	of      settings
	imports map[types.NamespacedName]settled
}

// settings are what all imports depend on.
type settings struct {
	hints, direct, localFault bool
	contact                   Contact
	zones                     []string
}

func (s settings) equal(o settings) bool {
	return s.hints == o.hints && s.direct == o.direct && s.localFault == o.localFault && s.contact == o.contact &&
		slices.Equal(s.zones, o.zones)
}

// settled is what one import depends on. Objects are those of the View, which nobody changes.
type settled struct {
	claims  []claim
	have    *mcsv1alpha1.ServiceImport
	service *corev1.Service
	slices  []*discoveryv1.EndpointSlice
}

func (s settled) equal(o settled) bool {
	return s.have == o.have && s.service == o.service && slices.Equal(s.claims, o.claims) &&
		slices.Equal(s.slices, o.slices)
}

// settings returns what all imports depend on now.
func (i *importer) settings() settings {
	return settings{hints: i.Hints, direct: i.Direct, localFault: i.localFault, contact: i.Contact, zones: i.Zones}
}

// planAll plans all imports, except those that are settled.
func (i *importer) planAll() {
	was := i.View.Settled
	if !was.of.equal(i.settings()) {
		was.imports = nil
	}
	i.out.Settled = Settled{i.settings(), make(map[types.NamespacedName]settled, len(i.held.imports))}
	for _, key := range i.keys() {
		is := settled{
			claims: i.claims[key], have: i.held.imports[key], slices: i.held.slices[key],
			service: i.held.services[types.NamespacedName{Namespace: key.Namespace, Name: DerivedName(key)}],
		}
		if before, has := was.imports[key]; has && before.equal(is) {
			i.out.Settled.imports[key] = before
			continue
		}
		if before := i.said(); i.plan(key) && i.said() == before {
			i.out.Settled.imports[key] = is
		}
	}
}

// said returns how much there is in the result.
func (i *importer) said() int {
	o := &i.out
	return len(o.Imports) + len(o.Services) + len(o.Slices) + len(o.Statuses) + len(o.Delete) + len(o.Conflicts) +
		len(o.Refused)
}
