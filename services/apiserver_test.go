package services

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
)

// apiServer holds what Import plans, as an API server with server-side apply does: it sets UIDs,
// addresses and defaults, refuses what is invalid, and collects objects whose owner is gone.
type apiServer struct {
	t        testing.TB
	imports  map[types.NamespacedName]*mcsv1alpha1.ServiceImport
	services map[types.NamespacedName]*corev1.Service
	slices   map[types.NamespacedName]*discoveryv1.EndpointSlice
	// applied has the keys of labels and annotations that were applied to each object.
	applied map[string][]string
	number  int
	// noAddresses makes Services have no cluster IP.
	noAddresses bool
	writes      int

	// cachedImports, cachedServices and cachedSlices are what lists has returned last.
	cachedImports  map[types.NamespacedName]*mcsv1alpha1.ServiceImport
	cachedServices map[types.NamespacedName]*corev1.Service
	cachedSlices   map[types.NamespacedName]*discoveryv1.EndpointSlice
}

func newAPIServer(t testing.TB) *apiServer {
	return &apiServer{
		t:        t,
		imports:  map[types.NamespacedName]*mcsv1alpha1.ServiceImport{},
		services: map[types.NamespacedName]*corev1.Service{},
		slices:   map[types.NamespacedName]*discoveryv1.EndpointSlice{},
		applied:  map[string][]string{},
	}
}

// meta applies metadata to that of an object.
func (a *apiServer) meta(kind string, have, want *metav1.ObjectMeta) {
	a.writes++
	key := fmt.Sprintf("%s %s/%s", kind, want.Namespace, want.Name)
	have.Namespace = want.Namespace
	have.Name = want.Name
	if have.UID == "" {
		a.number++
		have.UID = types.UID(strconv.Itoa(a.number))
	}
	for _, k := range a.applied[key] {
		delete(have.Labels, k)
		delete(have.Annotations, k)
	}
	if have.Labels == nil {
		have.Labels = map[string]string{}
	}
	if have.Annotations == nil {
		have.Annotations = map[string]string{}
	}
	for k, v := range want.Labels {
		require.Empty(a.t, validation.IsQualifiedName(k), key)
		require.Empty(a.t, validation.IsValidLabelValue(v), key)
	}
	maps.Copy(have.Labels, want.Labels)
	maps.Copy(have.Annotations, want.Annotations)
	a.applied[key] = slices.AppendSeq(slices.Collect(maps.Keys(want.Labels)), maps.Keys(want.Annotations))
	have.OwnerReferences = slices.Clone(want.OwnerReferences)
	require.Empty(a.t, validation.IsDNS1123Subdomain(want.Name))
	require.Empty(a.t, validation.IsDNS1123Label(want.Namespace))
	for k := range want.Annotations {
		require.Empty(a.t, validation.IsQualifiedName(strings.ToLower(k)), key)
	}
}

// apply applies a result, in the order of its documentation.
func (a *apiServer) apply(out Imported) {
	for _, want := range out.Imports {
		a.applyImport(want)
	}
	for _, want := range out.Services {
		a.applyService(want)
	}
	for _, want := range out.Slices {
		a.applySlice(want)
	}
	for _, want := range out.Statuses {
		a.writes++
		have := a.imports[keyOf(want)]
		require.Equal(a.t, have.UID, want.UID, "the status is that of another object")
		have.Status = *want.Status.DeepCopy()
		for n := range have.Status.Conditions {
			if c := &have.Status.Conditions[n]; c.LastTransitionTime.IsZero() {
				c.LastTransitionTime = metav1.NewTime(time.Unix(int64(a.writes), 0))
			}
		}
	}
	for _, o := range out.Delete {
		a.delete(o)
	}
}

func (a *apiServer) applyImport(want *mcsv1alpha1.ServiceImport) {
	have := a.imports[keyOf(want)]
	if have == nil {
		have = &mcsv1alpha1.ServiceImport{}
		a.imports[keyOf(want)] = have
	}
	a.meta("import", &have.ObjectMeta, &want.ObjectMeta)
	require.NotNil(a.t, want.Spec.Ports, "the schema requires a list")
	want.Spec.DeepCopyInto(&have.Spec)
}

func (a *apiServer) applyService(want *corev1.Service) {
	have := a.services[keyOf(want)]
	if have == nil {
		have = &corev1.Service{}
		a.services[keyOf(want)] = have
	}
	a.meta("service", &have.ObjectMeta, &want.ObjectMeta)
	spec := want.Spec.DeepCopy()
	for n, p := range spec.Ports {
		require.Contains(a.t, []corev1.Protocol{"TCP", "UDP", "SCTP"}, p.Protocol)
		require.True(a.t, p.Port > 0 && p.Port < 1<<16)
		if p.AppProtocol != nil {
			require.Empty(a.t, validation.IsQualifiedName(*p.AppProtocol))
		}
		require.True(a.t, p.Name != "" || len(spec.Ports) == 1, "a port without name among others")
		for _, o := range spec.Ports[:n] {
			require.NotEqual(a.t, o.Name, p.Name)
			require.False(a.t, o.Port == p.Port && o.Protocol == p.Protocol, "a port is there twice")
		}
	}
	require.NotEmpty(a.t, spec.Ports)
	spec.ClusterIP = have.Spec.ClusterIP
	if spec.ClusterIP == "" && !a.noAddresses {
		a.number++
		spec.ClusterIP = fmt.Sprintf("10.96.%d.%d", a.number/250, a.number%250+1)
	}
	spec.ClusterIPs = []string{spec.ClusterIP}
	spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
	have.Spec = *spec
}

func (a *apiServer) applySlice(want *discoveryv1.EndpointSlice) {
	have := a.slices[keyOf(want)]
	if have == nil {
		have = &discoveryv1.EndpointSlice{AddressType: want.AddressType}
		a.slices[keyOf(want)] = have
	}
	a.meta("slice", &have.ObjectMeta, &want.ObjectMeta)
	require.Equal(a.t, have.AddressType, want.AddressType, "the type of addresses is immutable")
	require.LessOrEqual(a.t, len(want.Endpoints), 100)
	require.LessOrEqual(a.t, len(want.Ports), 100)
	names := map[string]bool{}
	for _, p := range want.Ports {
		require.False(a.t, names[*p.Name], "a port is there twice")
		names[*p.Name] = true
		require.Positive(a.t, *p.Port)
	}
	for _, e := range want.Endpoints {
		require.Empty(a.t, validation.IsValidLabelValue(value(e.Zone)))
		if e.Hostname != nil {
			require.Empty(a.t, validation.IsDNS1123Label(*e.Hostname))
		}
	}
	c := want.DeepCopy()
	have.Ports = c.Ports
	have.Endpoints = c.Endpoints
}

func (a *apiServer) delete(o metav1.Object) {
	a.writes++
	switch o.(type) {
	case *mcsv1alpha1.ServiceImport:
		require.Contains(a.t, a.imports, keyOf(o))
		delete(a.imports, keyOf(o))
		delete(a.applied, "import "+keyOf(o).String())
	case *corev1.Service:
		require.Contains(a.t, a.services, keyOf(o))
		delete(a.services, keyOf(o))
		delete(a.applied, "service "+keyOf(o).String())
	case *discoveryv1.EndpointSlice:
		require.Contains(a.t, a.slices, keyOf(o))
		delete(a.slices, keyOf(o))
		delete(a.applied, "slice "+keyOf(o).String())
	default:
		require.Failf(a.t, "unknown kind", "%T", o)
	}
}

// collect deletes objects whose owner is gone.
func (a *apiServer) collect() {
	alive := map[types.UID]bool{}
	for _, i := range a.imports {
		alive[i.UID] = true
	}
	gone := func(o metav1.Object) bool {
		refs := o.GetOwnerReferences()
		return len(refs) > 0 && !slices.ContainsFunc(refs, func(r metav1.OwnerReference) bool { return alive[r.UID] })
	}
	maps.DeleteFunc(a.services, func(_ types.NamespacedName, s *corev1.Service) bool { return gone(s) })
	maps.DeleteFunc(a.slices, func(_ types.NamespacedName, s *discoveryv1.EndpointSlice) bool { return gone(s) })
}

// deleteNamespace deletes all objects in a namespace.
func (a *apiServer) deleteNamespace(ns string) {
	maps.DeleteFunc(a.imports,
		func(k types.NamespacedName, _ *mcsv1alpha1.ServiceImport) bool { return k.Namespace == ns })
	maps.DeleteFunc(a.services, func(k types.NamespacedName, _ *corev1.Service) bool { return k.Namespace == ns })
	maps.DeleteFunc(a.slices,
		func(k types.NamespacedName, _ *discoveryv1.EndpointSlice) bool { return k.Namespace == ns })
}

// lists returns what a cache of the API server has: objects that nobody may change, sorted. Those
// that have not changed are the same in memory.
func (a *apiServer) lists(v *View) {
	v.Imports, a.cachedImports = cached(a.cachedImports, a.imports)
	v.Services, a.cachedServices = cached(a.cachedServices, a.services)
	v.Slices, a.cachedSlices = cached(a.cachedSlices, a.slices)
}

// cached returns copies of objects, sorted, where was are the copies of before.
func cached[T interface{ DeepCopy() T }](
	was, now map[types.NamespacedName]T,
) (list []T, is map[types.NamespacedName]T) {
	is = make(map[types.NamespacedName]T, len(now))
	for _, key := range slices.SortedFunc(maps.Keys(now), compareNames) {
		if is[key] = was[key]; !reflect.DeepEqual(was[key], now[key]) {
			is[key] = now[key].DeepCopy()
		}
		list = append(list, is[key])
	}
	return list, is
}

func (out Imported) empty() bool {
	return len(out.Imports)+len(out.Services)+len(out.Slices)+len(out.Statuses)+len(out.Delete) == 0
}
