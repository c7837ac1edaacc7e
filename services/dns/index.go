// Package dns answers questions for names of imported Services, under the domain clusterset.local. It
// knows ServiceImports and EndpointSlices, and nothing else; package agent/dns reads them from an API
// server, and receives the questions.
//
// Names and records follow version 1.0.0 of the DNS specification of the Multi-Cluster Services API,
// and where it leaves a choice, what keeps resolvers working: a name that exists never denies a type
// with NXDOMAIN, and each negative answer has an SOA record, which bounds how long it is cached.
//
// The package has no clock and does no I/O.
package dns

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unique"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/services"
)

// Index holds the names. It follows changes of single objects, while it answers questions.
type Index struct {
	clusterID    string
	clusterNames bool
	// choose returns a number below n: where an answer begins that has room for some records only.
	choose func(n int) int

	importsRead, slicesRead atomic.Bool

	// writing is held by whoever changes the index, and mu only while maps change, so that questions
	// do not wait until records are computed.
	writing sync.Mutex
	slices  map[types.NamespacedName]string // the key of the Service of each slice

	imports int

	mu         sync.RWMutex
	services   map[string]*service // by <service>.<namespace>
	namespaces map[string]int      // the number of imports in each
}

// NewIndex returns an empty index for the cluster with an ID. clusterNames specifies whether the name
// <cluster>.<service>.<namespace>.svc.clusterset.local stands for the endpoints of one cluster.
func NewIndex(clusterID string, clusterNames bool) *Index {
	return &Index{
		clusterID: clusterID, clusterNames: clusterNames, choose: rand.IntN,
		slices: map[types.NamespacedName]string{}, services: map[string]*service{}, namespaces: map[string]int{},
	}
}

// service is everything that is known of one Service. It is never changed, only replaced.
type service struct {
	name   string    // web.shop.svc.clusterset.local.
	spec   *imported // nil if there are slices, but no import
	slices []*slice  // by name
	// addresses are those that the name stands for.
	addresses []netip.Addr
	// members are the ready endpoints of a headless Service.
	members []member
}

// imported is a ServiceImport.
type imported struct {
	headless, direct, spread bool
	ips                      []netip.Addr
	ports                    []port
}

type port struct {
	name, protocol string
	number         uint16
}

// slice is an EndpointSlice.
type slice struct {
	name, cluster string
	// address is the exporter's address of the Service; the zero Addr if it is not known.
	address   netip.Addr
	ports     []port
	endpoints []endpoint
}

type endpoint struct {
	address  netip.Addr
	hostname string // empty: the name is the address with dashes
	ready    bool
}

// member is an endpoint of a slice.
type member struct {
	*endpoint
	of *slice
}

// maxAddresses is the number of A records in the largest response: each has 16 octets, since its name
// is a reference to the question.
const maxAddresses = 1 << 16 / 16

// SetImport adds or replaces an import. An import without the label of subctl is not ours, and has no
// names.
func (i *Index) SetImport(o *mcsv1alpha1.ServiceImport) {
	i.writing.Lock()
	defer i.writing.Unlock()
	i.setImport(o)
}

func (i *Index) setImport(o *mcsv1alpha1.ServiceImport) {
	i.change(keyOf(o.Namespace, o.Name), func(s *service) { s.spec = readImport(o) })
}

// DeleteImport removes an import.
func (i *Index) DeleteImport(name types.NamespacedName) {
	i.writing.Lock()
	defer i.writing.Unlock()
	i.change(keyOf(name.Namespace, name.Name), func(s *service) { s.spec = nil })
}

// ReplaceImports removes all imports but those of a complete list, which it adds.
func (i *Index) ReplaceImports(all []*mcsv1alpha1.ServiceImport) {
	i.writing.Lock()
	defer i.writing.Unlock()
	listed := map[string]bool{}
	for _, o := range all {
		listed[keyOf(o.Namespace, o.Name)] = true
		i.setImport(o)
	}
	for key, s := range i.services {
		if s.spec != nil && !listed[key] {
			i.change(key, func(s *service) { s.spec = nil })
		}
	}
	i.importsRead.Store(true)
}

// SetSlice adds or replaces a slice. A slice that service discovery has not made does not count.
func (i *Index) SetSlice(o *discoveryv1.EndpointSlice) {
	i.writing.Lock()
	defer i.writing.Unlock()
	i.setSlice(o)
}

func (i *Index) setSlice(o *discoveryv1.EndpointSlice) {
	name := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	s := readSlice(o)
	key := keyOf(o.Namespace, o.Labels[mcsv1alpha1.LabelServiceName])
	if was := i.slices[name]; s == nil || was != key {
		i.deleteSlice(name)
	}
	if s == nil || key == "" {
		return
	}
	i.slices[name] = key
	i.change(key, func(of *service) {
		at, found := of.find(o.Name)
		of.slices = slices.Clone(of.slices)
		if found {
			of.slices[at] = s
		} else {
			of.slices = slices.Insert(of.slices, at, s)
		}
	})
}

// DeleteSlice removes a slice.
func (i *Index) DeleteSlice(name types.NamespacedName) {
	i.writing.Lock()
	defer i.writing.Unlock()
	i.deleteSlice(name)
}

func (i *Index) deleteSlice(name types.NamespacedName) {
	i.change(i.slices[name], func(of *service) {
		if at, found := of.find(name.Name); found {
			of.slices = slices.Delete(slices.Clone(of.slices), at, at+1)
		}
	})
	delete(i.slices, name)
}

// ReplaceSlices removes all slices but those of a complete list, which it adds.
func (i *Index) ReplaceSlices(all []*discoveryv1.EndpointSlice) {
	i.writing.Lock()
	defer i.writing.Unlock()
	listed := map[types.NamespacedName]bool{}
	for _, o := range all {
		listed[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = true
		i.setSlice(o)
	}
	for name := range i.slices {
		if !listed[name] {
			i.deleteSlice(name)
		}
	}
	i.slicesRead.Store(true)
}

// Ready reports whether complete lists of imports and slices have been read. Before that, a name that
// is missing may exist.
func (i *Index) Ready() bool { return i.importsRead.Load() && i.slicesRead.Load() }

// Count returns the numbers of imports and slices.
func (i *Index) Count() (imports, slices int) {
	i.writing.Lock()
	defer i.writing.Unlock()
	return i.imports, len(i.slices)
}

// service returns the service with a key; nil if there is no import.
func (i *Index) service(key string) *service {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if s := i.services[key]; s != nil && s.spec != nil {
		return s
	}
	return nil
}

// namespace reports whether a namespace has imports.
func (i *Index) namespace(name string) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.namespaces[name] > 0
}

// change replaces the service with a key by an edited copy. An empty key is no service.
func (i *Index) change(key string, edit func(*service)) {
	if key == "" {
		return
	}
	is := service{name: key + ".svc." + zone}
	was := i.services[key]
	if was != nil {
		is.name, is.spec, is.slices = was.name, was.spec, was.slices
	}
	edit(&is)
	is.derive(i.clusterID)

	i.mu.Lock()
	defer i.mu.Unlock()
	_, namespace, _ := strings.Cut(key, ".")
	if had := was != nil && was.spec != nil; had != (is.spec != nil) {
		count := 1
		if had {
			count = -1
		}
		i.imports += count
		if i.namespaces[namespace] += count; i.namespaces[namespace] == 0 {
			delete(i.namespaces, namespace)
		}
	}
	if is.spec == nil && len(is.slices) == 0 {
		delete(i.services, key)
	} else {
		i.services[key] = &is
	}
}

// find returns where a slice is, or belongs.
func (s *service) find(name string) (int, bool) {
	return slices.BinarySearchFunc(s.slices, name, func(a *slice, b string) int { return strings.Compare(a.name, b) })
}

// derive computes what the name stands for.
func (s *service) derive(clusterID string) {
	switch {
	case s.spec == nil:
	case s.spec.headless:
		s.members = s.endpoints(func(m member) bool { return m.ready })
		s.addresses = addressesOf(s.members)
	case s.spec.direct || len(s.spec.ips) == 0:
		s.addresses = s.exporters(clusterID)
	default:
		s.addresses = s.spec.ips
	}
}

// exporters returns the addresses of those exporters that are ready: of the own cluster alone if it is,
// since clients and caches reorder addresses. Clients connect to a port of the Service, so endpoints
// with other ports do not count: the exporter's address of the Service stands for them if the slice has
// it, or else that of the import.
func (s *service) exporters(clusterID string) []netip.Addr {
	ready := s.endpoints(func(m member) bool { return m.ready })
	own := ready
	if !s.spec.spread {
		own = s.endpoints(func(m member) bool { return m.ready && m.of.cluster == clusterID })
	}
	for _, members := range [][]member{own, ready} {
		var found []netip.Addr
		for _, m := range members {
			switch {
			case m.of.address.IsValid():
				found = append(found, m.of.address)
			case s.spec.hasAll(m.of.ports):
				found = append(found, m.address)
			}
		}
		if len(found) > 0 {
			return distinct(found)
		}
		if len(members) > 0 && len(s.spec.ips) > 0 {
			break
		}
	}
	return s.spec.ips
}

// hasAll reports whether the import has all of some ports, with the same numbers.
func (i *imported) hasAll(ports []port) bool {
	return !slices.ContainsFunc(ports, func(p port) bool { return !slices.Contains(i.ports, p) })
}

// ofCluster returns the addresses of a cluster: its address of the Service if a slice has it, or else
// those of endpoints, ready ones if there are any.
func (s *service) ofCluster(cluster string) []netip.Addr {
	found := s.endpoints(func(m member) bool { return m.ready && m.of.cluster == cluster })
	if len(found) == 0 {
		found = s.endpoints(func(m member) bool { return m.of.cluster == cluster })
	}
	if len(found) > 0 && found[0].of.address.IsValid() {
		return []netip.Addr{found[0].of.address}
	}
	return addressesOf(found)
}

// endpoints returns the endpoints that are selected, as many as a response can have.
func (s *service) endpoints(selected func(member) bool) (out []member) {
	for _, of := range s.slices {
		for i := range of.endpoints {
			if m := (member{&of.endpoints[i], of}); selected(m) {
				if len(out) == maxAddresses {
					return out
				}
				out = append(out, m)
			}
		}
	}
	return out
}

// addressesOf returns the addresses of endpoints, each once: a pod is in a slice for each group of
// ports.
func addressesOf(members []member) []netip.Addr {
	if len(members) == 0 {
		return nil
	}
	out := make([]netip.Addr, len(members))
	for i, m := range members {
		out[i] = m.address
	}
	return distinct(out)
}

// distinct returns addresses sorted, each once.
func distinct(all []netip.Addr) []netip.Addr {
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Clip(slices.Compact(all))
}

// keyOf returns the key of a Service in the index; empty if no name in DNS can stand for it.
func keyOf(namespace, name string) string {
	if !isLabel(namespace) || !isLabel(name) {
		return ""
	}
	return name + "." + namespace
}

// readImport returns what the index keeps of an import; nil if it is not ours.
func readImport(o *mcsv1alpha1.ServiceImport) *imported {
	if o.Labels[submarinerv1.ManagedByLabel] != submarinerv1.ManagedBy {
		return nil
	}
	out := &imported{
		headless: o.Spec.Type == mcsv1alpha1.Headless,
		direct:   o.Annotations[v1alpha1.DirectAnnotation] == "true",
		spread:   o.Annotations[v1alpha1.SpreadAnnotation] == "true",
	}
	for _, ip := range o.Spec.IPs {
		if a, ok := readAddress(ip); ok {
			out.ips = append(out.ips, a)
		}
	}
	for _, p := range o.Spec.Ports {
		out.ports = appendPort(out.ports, p.Name, string(p.Protocol), p.Port)
	}
	return out
}

// readSlice returns what the index keeps of a slice; nil if it is not ours.
func readSlice(o *discoveryv1.EndpointSlice) *slice {
	cluster := o.Labels[mcsv1alpha1.LabelSourceCluster]
	if o.Labels[discoveryv1.LabelManagedBy] != services.ManagedBy || !isLabel(cluster) {
		return nil
	}
	out := &slice{name: o.Name, cluster: intern(cluster), endpoints: make([]endpoint, 0, len(o.Endpoints))}
	if a, ok := readAddress(o.Annotations[services.AddressAnnotation]); ok {
		out.address = a
	}
	for _, p := range o.Ports {
		if p.Port == nil {
			continue
		}
		name, protocol := "", ""
		if p.Name != nil {
			name = *p.Name
		}
		if p.Protocol != nil {
			protocol = string(*p.Protocol)
		}
		out.ports = appendPort(out.ports, name, protocol, *p.Port)
	}
	for _, e := range o.Endpoints {
		if len(e.Addresses) == 0 {
			continue
		}
		a, ok := readAddress(e.Addresses[0]) // consumers use the first one only
		if !ok {
			continue
		}
		is := endpoint{address: a, ready: e.Conditions.Ready == nil || *e.Conditions.Ready}
		if e.Hostname != nil && isLabel(*e.Hostname) {
			is.hostname = *e.Hostname
		}
		out.endpoints = append(out.endpoints, is)
	}
	return out
}

func readAddress(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	return a.Unmap(), err == nil && a.Zone() == ""
}

func appendPort(to []port, name, protocol string, number int32) []port {
	if number < 1 || number > 65535 {
		return to
	}
	if protocol == "" {
		protocol = "TCP"
	}
	return append(to, port{intern(strings.ToLower(name)), intern(strings.ToLower(protocol)), uint16(number)})
}

// intern returns a string that is in memory once, however many objects have it.
func intern(s string) string { return unique.Make(s).Value() }

// isLabel reports whether s is a label of a domain name as Kubernetes has them (RFC 1123).
func isLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}
