package services

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/prefix"
)

// Whoever may write ServiceExports chooses labels and annotations that all importing clusters get.
// They must not control other software there, nor be refused by an API server.
func TestHostileExportedKeys(t *testing.T) {
	for _, test := range []struct{ name, key, value string }{
		{"Kubernetes", "kubernetes.io/hostname", "x"},
		{"a part of Kubernetes", "service.kubernetes.io/service-proxy-name", "x"},
		{"another part", "multicluster.kubernetes.io/service-name", "x"},
		{"k8s.io", "k8s.io/x", "x"},
		{"external-dns", "external-dns.alpha.k8s.io/hostname", "x"},
		{"Submariner", "submariner.io/direct", "true"},
		{"Submariner's copies", "submariner-io/clusterID", "west"},
		{"Submariner's gateways", "gateway.submariner.io/drain", "1m"},
		{"Argo CD", "argocd.argoproj.io/tracking-id", "x"},
		{"Flux", "kustomize.toolkit.fluxcd.io/name", "x"},
		{"Helm", "meta.helm.sh/release-name", "x"},
		{"Istio", "networking.istio.io/exportTo", "x"},
		{"capital letters", "Kubernetes.IO/x", "x"},
		{"no prefix", "/x", "x"},
		{"no name", "example.com/", "x"},
		{"two names", "example.com/kubernetes.io/x", "x"},
		{"empty", "", "x"},
		{"escapes", "a\x00b", "x"},
		{"markup", "<script>", "x"},
		{"a value that fills the record", "huge", strings.Repeat("<", 1000)},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := shop()
			s.Exports[0].Spec.ExportedLabels = map[string]string{test.key: test.value, "tier": "front"}
			s.Exports[0].Spec.ExportedAnnotations = map[string]string{test.key: test.value, "note": "kubernetes.io/x"}
			e := only(t, s)
			require.Equal(t, map[string]string{"tier": "front"}, e.Record.Labels)
			require.Equal(t, map[string]string{"note": "kubernetes.io/x"}, e.Record.Annotations)
			require.Contains(t, e.Conditions[1].Message, fmt.Sprintf("in all: %q", test.key))
			require.Equal(t, exportedText, conditionsText(e.Conditions))
		})
	}
	s := shop()
	s.Exports[0].Spec.ExportedLabels = map[string]string{"tier": "not a value of a label"}
	require.Empty(t, only(t, s).Record.Labels)
}

// Many and long keys are bounded, in the record and in the message.
func TestHostileManyExportedKeys(t *testing.T) {
	s := shop()
	s.Exports[0].Spec.ExportedLabels = map[string]string{}
	s.Exports[0].Spec.ExportedAnnotations = map[string]string{}
	for i := range 10_000 {
		s.Exports[0].Spec.ExportedLabels[fmt.Sprintf("key-%05d", i)] = "v"
		s.Exports[0].Spec.ExportedAnnotations[strings.Repeat("k", 10_000)+fmt.Sprint(i)] = ""
	}
	e := only(t, s)
	require.Len(t, e.Record.Labels, 32)
	require.Contains(t, e.Record.Labels, "key-00031")
	require.Empty(t, e.Record.Annotations)
	require.Less(t, len(e.Conditions[1].Message), 1000)
}

// 10,000 endpoints take no more room than a page has.
func TestHostileExportedEndpoints(t *testing.T) {
	var endpoints []string
	for i, ip := range podAddresses(10_000) {
		name := fmt.Sprintf("%s-%d", strings.Repeat("h", 50), i)
		endpoints = append(endpoints, fmt.Sprintf("%s hostname=%s zone=%s", ip, name, strings.Repeat("z", 63)))
	}
	for _, change := range []func(*Source){func(*Source) {}, makeHeadless, global} {
		s := shop()
		s.Slices = nil
		for i := 0; i < len(endpoints); i += 1000 {
			s.Slices = append(s.Slices, sliceOf("web", "http:8080", endpoints[i:i+1000]...))
		}
		s.Ingress = append(s.Ingress, ingressOf(submarinerv1.TargetClusterIPService, "web", "242.1.0.5"))
		change(s)
		e := only(t, s)
		require.LessOrEqual(t, jsonSize(e.Record), maxRecord)
		require.True(t, e.Record.Ready)
		require.Len(t, e.Local.Endpoints[0].Pods, 10_000)
		for _, c := range e.Conditions {
			require.Less(t, len(c.Message), 1000)
		}
		pages, left := Pages("east", nil, []v1alpha1.ExportedService{*e.Record})
		require.Len(t, pages, 1)
		require.Empty(t, left)
	}
}

// Endpoints with many different target ports are bounded.
func TestHostileExportedTargets(t *testing.T) {
	s := shop()
	makeHeadless(s)
	s.Slices = nil
	for i, ip := range podAddresses(20_000) {
		s.Slices = append(s.Slices, sliceOf("web", fmt.Sprintf("http:%d", 1+i), ip))
	}
	e := only(t, s)
	require.Len(t, e.Record.Endpoints, v1alpha1.MaxExportedGroups)
	require.Len(t, e.Local.Endpoints, 20_000)
}

// A Service may have more ports, and longer names, than a record.
func TestHostileExportedPorts(t *testing.T) {
	s := shop()
	var ports []corev1.ServicePort
	var targets []string
	for i := range int32(1000) {
		name := fmt.Sprintf("p%04d", i)
		port := corev1.ServicePort{Name: name, Protocol: corev1.ProtocolUDP, Port: 1000 + i}
		port.AppProtocol = new(strings.Repeat("x", 317)) // the most that an API server allows
		ports = append(ports, port)
		targets = append(targets, fmt.Sprintf("%s:%d/UDP", name, 1000+i))
	}
	s.Services[0].Spec.Ports = ports
	s.Slices[0] = sliceOf("web", strings.Join(targets, " "), "10.244.0.1")
	e := only(t, s)
	require.Len(t, e.Record.Ports, 32)
	require.Len(t, e.Record.Endpoints[0].Targets, 32)
	require.Empty(t, e.Record.Ports[0].AppProtocol)
	require.Contains(t, e.Conditions[1].Message, "not exported, as they are more than 32: 1032/UDP, 1033/UDP")

	// The most that a record can have besides endpoints fits in no page.
	for i := range ports {
		ports[i].Name = strings.Repeat("n", 58) + ports[i].Name
		ports[i].AppProtocol = new(strings.Repeat("x", 253))
	}
	s.Exports[0].Spec.ExportedAnnotations = map[string]string{"x": strings.Repeat("x", 4000)}
	e = only(t, s)
	require.Nil(t, e.Record)
	require.Equal(t, failedText, conditionsText(e.Conditions))
	require.Contains(t, e.Conditions[1].Message, "more than 11 KiB: export fewer")
}

// Names with escapes, as an API server would not store them, stay in the JSON of their own record.
func TestHostileExportedNames(t *testing.T) {
	for _, text := range []string{
		`","pages":0,"x":"`, "\x00", "\u2028", "../../kube-system/x", strings.Repeat("<", 63), "ünïcode", "\xff\xfe",
	} {
		s := shop()
		s.Slices[0].Endpoints[0].Hostname = &text
		s.Slices[0].Endpoints[0].Zone = &text
		r := only(t, s).Record
		require.Equal(t, "10.96.0.10 ready [8080] 10.244.0.1 10.244.0.2,NotReady", recordText(r))

		s.Services[0].Spec.Ports[0].AppProtocol = &text
		s.Exports[0].Spec.ExportedAnnotations = map[string]string{"text": text}
		r = only(t, s).Record
		pages, _ := Pages("east", nil, []v1alpha1.ExportedService{*r})
		b, err := json.Marshal(pages[0].Spec)
		require.NoError(t, err)
		var spec v1alpha1.ExportedServicesSpec
		require.NoError(t, json.Unmarshal(b, &spec))
		require.Equal(t, 1, spec.Pages)
		require.Len(t, spec.Services, 1)
		require.Equal(t, "shop/web", nameOf(&spec.Services[0]).String())
	}
}

// Whoever may write EndpointSlices, Services or GlobalIngressIPs of a namespace chooses addresses.
// Of those, only the ones that this cluster announces are published.
func TestHostileExportedAddresses(t *testing.T) {
	foreign := []string{
		"10.45.0.9", "192.0.2.1", "8.8.8.8", "10.96.0.1", "127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0",
		"fd00::1", "::ffff:10.244.0.1", "x", "",
	}
	for _, change := range []func(*Source){
		func(*Source) {},
		makeHeadless,
		func(s *Source) { s.Services[0].Spec.Selector = nil },
		func(s *Source) {
			s.Services[0].Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
		},
	} {
		s := shop()
		for _, ip := range foreign {
			s.Slices[0].Endpoints = append(s.Slices[0].Endpoints,
				discoveryv1.Endpoint{Addresses: []string{ip, "10.244.0.9"}})
		}
		change(s)
		requireAnnounced(t, s, only(t, s).Record)
	}
	for _, ip := range append(foreign, "242.2.0.5") {
		s := shop()
		global(s)
		s.Ingress = append(s.Ingress, ingressOf(submarinerv1.TargetClusterIPService, "web", ip))
		require.Nil(t, only(t, s).Record, ip)

		makeHeadless(s)
		s.Slices[0] = sliceOf("web", "http:8080", "10.244.0.1 pod=web-0")
		s.Ingress = append(s.Ingress, ingressOf(submarinerv1.TargetHeadlessServicePod, "web-0", ip))
		require.Equal(t, "headless", recordText(only(t, s).Record), ip)
	}
	s := shop()
	s.Services[0].Spec.ClusterIP = "192.0.2.1"
	require.Nil(t, only(t, s).Record)
}

// requireAnnounced requires that all addresses of a record are in networks that the cluster
// announces.
func requireAnnounced(t *testing.T, s *Source, r *v1alpha1.ExportedService) {
	t.Helper()
	addresses := s.ServiceNetworks
	endpoints := s.PodNetworks
	if len(s.GlobalNetworks) > 0 {
		addresses = s.GlobalNetworks
		endpoints = s.GlobalNetworks
	}
	switch {
	case r.Headless:
		require.Empty(t, r.Address)
	case r.Address == "":
		require.NotEmpty(t, r.Endpoints)
	default:
		require.True(t, prefix.Contains(addresses, netip.MustParseAddr(r.Address)), r.Address)
	}
	for _, g := range r.Endpoints {
		require.Len(t, g.Targets, len(r.Ports))
		require.NotEmpty(t, g.Pods)
		for _, p := range g.Pods {
			require.True(t, prefix.Contains(endpoints, netip.MustParseAddr(p.IP)), p.IP)
		}
	}
}

// randomSource returns what a cluster may have to export: Services of all kinds, with slices that
// list endpoints anywhere.
func randomSource(random *rand.Rand) *Source {
	s := shop()
	s.Exports = nil
	s.Services = nil
	s.Slices = nil
	s.Readers = random.IntN(100)
	s.MayExport = func(string) bool { return true }
	if random.IntN(3) == 0 {
		global(s)
	}
	for i := range 1 + random.IntN(20) {
		name := fmt.Sprintf("s%02d", i)
		s.Exports = append(s.Exports, exportOf(name))
		if random.IntN(10) == 0 {
			continue
		}
		service := serviceOf(name)
		var ports []string
		for p := range 1 + random.IntN(4)*random.IntN(15) {
			port := corev1.ServicePort{Name: fmt.Sprintf("p%d", p), Port: int32(1 + p), Protocol: corev1.ProtocolTCP}
			service.Spec.Ports = append(service.Spec.Ports, port)
			ports = append(ports, fmt.Sprintf("p%d:%d", p, 8000+random.IntN(3)))
		}
		if random.IntN(3) == 0 {
			service.Spec.ClusterIP = corev1.ClusterIPNone
			service.Spec.ClusterIPs = nil
		}
		if random.IntN(3) == 0 {
			service.Spec.Selector = nil
		}
		if random.IntN(3) == 0 {
			service.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
		}
		s.Services = append(s.Services, service)
		if random.IntN(2) == 0 {
			s.Ingress = append(s.Ingress, ingressOf(submarinerv1.TargetClusterIPService, name, "242.1.0.5"))
		}
		foreign := random.IntN(2) == 0
		for range random.IntN(4) {
			slice := sliceOf(name, strings.Join(ports[random.IntN(len(ports)):], " "))
			for range random.IntN(1 << random.IntN(9)) {
				ip := netip.AddrFrom4([4]byte{10, 244, byte(random.IntN(4)), byte(random.IntN(256))})
				if foreign && random.IntN(4) == 0 {
					ip = netip.AddrFrom4([4]byte{10, byte(random.IntN(256)), 0, 1})
				}
				pod := fmt.Sprintf("pod-%d", random.IntN(100))
				state := []string{"", "NotReady", "Serving", "Terminating"}[random.IntN(4)]
				text := fmt.Sprintf("%s %s pod=%s hostname=%s zone=a", ip, state, pod, pod)
				slice.Endpoints = append(slice.Endpoints, endpointOf(text))
			}
			s.Slices = append(s.Slices, slice)
		}
	}
	for i := range 100 {
		ip := netip.AddrFrom4([4]byte{242, 1, 1, byte(random.IntN(256))})
		s.Ingress = append(s.Ingress,
			ingressOf(submarinerv1.TargetHeadlessServicePod, fmt.Sprintf("pod-%d", i), ip.String()))
	}
	return s
}

// Whatever a cluster exports: each export has a result, in order; records are bounded, with
// announced addresses, each once; and the same Source gives the same result.
func TestExportInvariants(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		s := randomSource(random)
		out := Export(*s)
		require.Len(t, out, len(s.Exports))
		for i, e := range out {
			require.Same(t, s.Exports[i], e.Export)
			require.Equal(t, e.Record == nil, e.Local == nil)
			if e.Record == nil {
				continue
			}
			requireAnnounced(t, s, e.Record)
			require.LessOrEqual(t, jsonSize(e.Record), maxRecord)
			require.LessOrEqual(t, len(e.Record.Endpoints), v1alpha1.MaxExportedGroups)
			for _, r := range []*v1alpha1.ExportedService{e.Record, e.Local} {
				var seen []string
				for _, g := range r.Endpoints {
					require.NotNil(t, g.Targets)
					for _, p := range g.Pods {
						seen = append(seen, p.IP)
					}
				}
				slices.Sort(seen)
				require.Len(t, slices.Compact(seen), len(seen))
			}
		}
		require.Equal(t, out, Export(*s))
	}
}

// What a cluster exports, other clusters import: they refuse a record as a whole.
func TestExportedIsAccepted(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	view := View{
		Namespaces: map[string]bool{"shop": true},
		Forbidden:  []netip.Prefix{netip.MustParsePrefix("10.45.0.0/16")},
	}
	accepted := 0
	for range 100 {
		s := randomSource(random)
		announced := newNetworks(&Member{
			PodNetworks:     s.PodNetworks,
			ServiceNetworks: s.ServiceNetworks,
			GlobalNetworks:  s.GlobalNetworks,
		})
		for _, e := range Export(*s) {
			if e.Record != nil {
				require.Empty(t, newDoor(view).check("east", e.Record, announced))
				accepted++
			}
		}
	}
	require.Greater(t, accepted, 500)
}

// A cluster with 10,000 exported Services of 5 pods each is one call.
func BenchmarkExport(b *testing.B) {
	s := large(10_000)
	for b.Loop() {
		Export(*s)
	}
}

// large returns a Source with as many Services, of 5 pods each, and as many more that are not
// exported.
func large(n int) *Source {
	s := shop()
	s.Exports = nil
	s.Services = nil
	s.Slices = nil
	for i := range 2 * n {
		name := fmt.Sprintf("s%05d", i)
		var endpoints []string
		for p := range 5 {
			endpoints = append(endpoints, fmt.Sprintf("10.244.%d.%d zone=eu-central-1a pod=%s-%d", i%256, p, name, p))
		}
		if i%2 == 0 {
			s.Exports = append(s.Exports, exportOf(name))
		}
		ports := []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "grpc", Port: 90}}
		s.Services = append(s.Services, serviceOf(name, ports...))
		s.Slices = append(s.Slices, sliceOf(name, "http:8080 grpc:9090", endpoints...))
	}
	return s
}
