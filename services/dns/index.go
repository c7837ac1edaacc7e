// Package dns answers questions for names of imported Services, under the domain clusterset.local.
// It knows ServiceImports and EndpointSlices, and nothing else; package agent/dns reads them from
// an API server, and receives the questions.
//
// Names and records follow version 1.0.0 of the DNS specification of the Multi-Cluster Services
// API, and where it leaves a choice, what keeps resolvers working: a name that exists never denies
// a type with NXDOMAIN, and each negative answer has an SOA record, which bounds how long it is
// cached.
//
// The package has no clock and does no I/O.
package dns

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
)

// Index holds the names. It follows changes of single objects, while it answers questions.
type Index struct {
	clusterID    string
	clusterNames bool
	// choose returns a number below n: where an answer begins that has room for some records only.
	choose func(n int) int

	importsRead, slicesRead atomic.Bool

	// writing is held by whoever changes the index, and mu only while maps change, so that
	// questions do not wait until records are computed.
	writing sync.Mutex
	slices  map[types.NamespacedName]string // the key of the Service of each slice

	imports int

	mu         sync.RWMutex
	services   map[string]*service // by <service>.<namespace>
	namespaces map[string]int      // the number of imports in each
}

// NewIndex returns an empty index for the cluster with an ID. clusterNames specifies whether the
// name <cluster>.<service>.<namespace>.svc.clusterset.local stands for the endpoints of one
// cluster.
func NewIndex(clusterID string, clusterNames bool) *Index {
	return &Index{
		clusterID: clusterID, clusterNames: clusterNames, choose: rand.IntN,
		slices: map[types.NamespacedName]string{}, services: map[string]*service{}, namespaces: map[string]int{},
	}
}

// SetImport adds or replaces an import. An import without the label of subctl is not ours, and has
// no names.
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

// Ready reports whether complete lists of imports and slices have been read. Before that, a name
// that is missing may exist.
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
		is.name = was.name
		is.spec = was.spec
		is.slices = was.slices
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

// keyOf returns the key of a Service in the index; empty if no name in DNS can stand for it.
func keyOf(namespace, name string) string {
	if !isLabel(namespace) || !isLabel(name) {
		return ""
	}
	return name + "." + namespace
}
