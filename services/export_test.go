package services

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// shop returns a Source of a flat cluster with namespace shop, which exports the Service web: port
// http leads to port 8080 of two pods, of which one is ready.
func shop() *Source {
	http := corev1.ServicePort{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}
	return &Source{
		ClusterID:       "east",
		Exports:         []*mcsv1alpha1.ServiceExport{exportOf("web")},
		Services:        []*corev1.Service{serviceOf("web", http)},
		Slices:          []*discoveryv1.EndpointSlice{sliceOf("web", "http:8080", "10.244.0.1", "10.244.0.2 NotReady")},
		PodNetworks:     []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
		ServiceNetworks: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")},
		Readers:         3,
		MayExport:       func(namespace string) bool { return namespace == "shop" },
	}
}

// global gives a Source a global network.
func global(s *Source) {
	s.GlobalNetworks = []netip.Prefix{netip.MustParsePrefix("242.1.0.0/16")}
}

func exportOf(name string) *mcsv1alpha1.ServiceExport {
	return &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, Generation: 7, CreationTimestamp: metav1.Unix(1000, 0),
	}}
}

func serviceOf(name string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: corev1.ServiceSpec{
			Type:       corev1.ServiceTypeClusterIP,
			Selector:   map[string]string{"app": name},
			ClusterIP:  "10.96.0.10",
			ClusterIPs: []string{"10.96.0.10"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      ports,
		},
	}
}

// sliceOf returns an EndpointSlice with ports such as "http:8080 dns:53/UDP" and endpoints such as
// "10.244.0.2 NotReady hostname=db-0 zone=a pod=db-0".
func sliceOf(service, ports string, endpoints ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: service + "-1", Labels: map[string]string{
			discoveryv1.LabelServiceName: service,
			discoveryv1.LabelManagedBy:   "endpointslice-controller.k8s.io",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, text := range strings.Fields(ports) {
		var port discoveryv1.EndpointPort
		text, protocol, found := strings.Cut(text, "/")
		if found {
			port.Protocol = new(corev1.Protocol(protocol))
		}
		name, number, _ := strings.Cut(text, ":")
		port.Name = &name
		port.Port = new(int32)
		fmt.Sscan(number, port.Port)
		s.Ports = append(s.Ports, port)
	}
	for _, text := range endpoints {
		s.Endpoints = append(s.Endpoints, endpointOf(text))
	}
	return s
}

func endpointOf(text string) (e discoveryv1.Endpoint) {
	yes := true
	no := false
	words := strings.Fields(text)
	e.Addresses = words[:1]
	for _, word := range words[1:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "NotReady":
			e.Conditions = discoveryv1.EndpointConditions{Ready: &no}
		case "Serving":
			e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
		case "Terminating":
			e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &yes}
		case "hostname":
			e.Hostname = &value
		case "zone":
			e.Zone = &value
		case "pod":
			e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: value}
		}
	}
	return e
}

// ingressOf returns a GlobalIngressIP.
func ingressOf(target submarinerv1.GlobalIngressTarget, name, ip string) *submarinerv1.GlobalIngressIP {
	o := &submarinerv1.GlobalIngressIP{ObjectMeta: exportOf(name).ObjectMeta}
	o.Spec.Target = target
	o.Status.AllocatedIP = ip
	if ref := (&corev1.LocalObjectReference{Name: name}); target == submarinerv1.TargetHeadlessServicePod {
		o.Spec.PodRef = ref
	} else {
		o.Spec.ServiceRef = ref
	}
	return o
}

func addPort(s *Source, p corev1.ServicePort) {
	s.Services[0].Spec.Ports = append(s.Services[0].Spec.Ports, p)
}

func makeHeadless(s *Source) {
	s.Services[0].Spec.ClusterIP = corev1.ClusterIPNone
	s.Services[0].Spec.ClusterIPs = []string{corev1.ClusterIPNone}
}

// podAddresses returns as many endpoints as asked, from 10.244.0.1.
func podAddresses(n int) (list []string) {
	ip := netip.MustParseAddr("10.244.0.1")
	for range n {
		list = append(list, ip.String())
		ip = ip.Next()
	}
	return list
}

// recordText returns the addresses of a record as text, such as "10.96.0.10 ready [8080]
// 10.244.0.1".
func recordText(r *v1alpha1.ExportedService) string {
	if r == nil {
		return "none"
	}
	words := []string{r.Address}
	switch {
	case r.Headless:
		words = []string{"headless"}
	case r.Address == "":
		words = []string{"pods only"}
	}
	if r.Ready {
		words = append(words, "ready")
	}
	for _, group := range r.Endpoints {
		words = append(words, fmt.Sprint(group.Targets))
		for _, p := range group.Pods {
			word := p.IP
			for _, part := range []string{p.Hostname, p.Zone, string(p.State)} {
				if part != "" {
					word += "," + part
				}
			}
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// conditionsText returns conditions as text, such as "Valid=True Valid".
func conditionsText(all []metav1.Condition) string {
	var words []string
	for _, c := range all {
		words = append(words, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
	}
	return strings.Join(words, ", ")
}

// only returns the one result of a Source.
func only(t *testing.T, s *Source) Exported {
	t.Helper()
	out := Export(*s)
	require.Len(t, out, 1)
	return out[0]
}

const (
	exportedText  = "Valid=True Valid, Ready=True Exported, Conflict=False NoConflicts"
	noServiceText = "Valid=False NoService, Ready=False Pending, Conflict=False NoConflicts"
	invalidText   = "Valid=False InvalidServiceType, Ready=False Pending, Conflict=False NoConflicts"
	failedText    = "Valid=True Valid, Ready=False Failed, Conflict=False NoConflicts"
)

// What a ServiceExport leads to: the record, and the conditions.
func TestExport(t *testing.T) {
	for _, test := range []struct {
		name       string
		change     func(*Source)
		record     string
		conditions string
		message    string // part of a message
	}{
		{
			"pods of a small Service", func(*Source) {},
			"10.96.0.10 ready [8080] 10.244.0.1 10.244.0.2,NotReady", exportedText,
			"published as web.shop.svc.clusterset.local to the clusters of its clustersets",
		},
		{
			"no Service", func(s *Source) { s.Services = nil },
			"none", noServiceText, "there is no Service web in namespace shop",
		},
		{
			"a Service of the same name in another namespace", func(s *Source) { s.Services[0].Namespace = "bank" },
			"none", noServiceText, "",
		},
		{
			"ExternalName", func(s *Source) { s.Services[0].Spec.Type = corev1.ServiceTypeExternalName },
			"none", invalidText, "export a Service with endpoints",
		},
		{
			"derived Service, by its label", func(s *Source) {
				s.Services[0].Labels = map[string]string{mcsv1alpha1.LabelServiceName: "db"}
			},
			"none", invalidText, "stands for an imported Service",
		},
		{
			"derived Service, by its owner", func(s *Source) {
				s.Services[0].OwnerReferences = []metav1.OwnerReference{{Kind: "ServiceImport", Name: "db"}}
			},
			"none", invalidText, "stands for an imported Service",
		},
		{
			"IPv6 only", func(s *Source) {
				spec := &s.Services[0].Spec
				spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
				spec.ClusterIP = "fd00::10"
				spec.ClusterIPs = []string{"fd00::10"}
			},
			"none", invalidText, "set spec.ipFamilyPolicy of the Service to PreferDualStack",
		},
		{
			"IPv6 first", func(s *Source) {
				spec := &s.Services[0].Spec
				spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
				spec.ClusterIP = "fd00::10"
				spec.ClusterIPs = []string{"fd00::10", "10.96.0.10"}
			},
			"10.96.0.10 ready [8080] 10.244.0.1 10.244.0.2,NotReady", exportedText, "",
		},
		{
			"namespace that the grant does not name", func(s *Source) {
				s.Exports[0].Namespace = "bank"
				s.Services[0].Namespace = "bank"
			},
			"none", "Valid=True Valid, Ready=False NamespaceNotGranted, Conflict=False NoConflicts",
			"subctl join --export-namespaces",
		},
		{
			"NodePort", func(s *Source) { s.Services[0].Spec.Type = corev1.ServiceTypeNodePort },
			"10.96.0.10 ready [8080] 10.244.0.1 10.244.0.2,NotReady", exportedText, "",
		},
		{
			"LoadBalancer", func(s *Source) { s.Services[0].Spec.Type = corev1.ServiceTypeLoadBalancer },
			"10.96.0.10 ready [8080] 10.244.0.1 10.244.0.2,NotReady", exportedText, "",
		},
		{
			"no cluster IP yet", func(s *Source) {
				s.Services[0].Spec.ClusterIP = ""
				s.Services[0].Spec.ClusterIPs = nil
			},
			"none", "Valid=True Valid, Ready=False Pending, Conflict=False NoConflicts", "no cluster IP yet",
		},
		{
			"cluster IP that is not announced", func(s *Source) { s.ServiceNetworks = nil },
			"none", failedText, "specify all Service networks with --servicecidr",
		},
		{
			"no endpoints", func(s *Source) { s.Slices = nil },
			"10.96.0.10", exportedText, "",
		},
		{
			"64 pods", func(s *Source) { s.Slices[0] = sliceOf("web", "http:8080", podAddresses(64)...) },
			"10.96.0.10 ready [8080] " + strings.Join(podAddresses(64), " "), exportedText, "",
		},
		{
			"65 pods: the cluster IP",
			func(s *Source) { s.Slices[0] = sliceOf("web", "http:8080", podAddresses(65)...) },
			"10.96.0.10 ready",
			exportedText,
			"",
		},
		{
			"many readers: the cluster IP", func(s *Source) { s.Readers = 51 },
			"10.96.0.10 ready", exportedText, "",
		},
		{
			"cluster IP that leads to pods of one node alone: pods", func(s *Source) {
				s.Services[0].Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
				s.Readers = 51
			},
			"10.96.0.10 ready [8080] 10.244.0.1 10.244.0.2,NotReady", exportedText, "",
		},
		{
			"and no more than 64", func(s *Source) {
				s.Services[0].Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
				s.Slices[0] = sliceOf("web", "http:8080", podAddresses(65)...)
			},
			"10.96.0.10 ready [8080] " + strings.Join(podAddresses(64), " "), exportedText,
			"at most 64 (headless: 256), in 11 KiB: 10.244.0.65",
		},
		{
			"pods in the network of their nodes: the cluster IP", func(s *Source) {
				s.Slices[0] = sliceOf("web", "http:8080", "10.244.0.1 NotReady", "172.18.0.2")
			},
			"10.96.0.10 ready", exportedText, "",
		},
		{
			"no selector, and some endpoints elsewhere", func(s *Source) {
				s.Services[0].Spec.Selector = nil
				s.Slices[0] = sliceOf("web", "http:8080", "10.244.0.1 NotReady", "172.18.0.2", "192.0.2.1")
			},
			"pods only [8080] 10.244.0.1,NotReady", exportedText, "not in the pod network: 172.18.0.2, 192.0.2.1",
		},
		{
			"no selector, and all endpoints elsewhere", func(s *Source) {
				s.Services[0].Spec.Selector = nil
				s.Slices[0] = sliceOf("web", "http:8080", "172.18.0.2", "192.0.2.1")
			},
			"none", failedText, "not in the pod network: 172.18.0.2, 192.0.2.1",
		},
		{
			"headless", makeHeadless,
			"headless ready [8080] 10.244.0.1 10.244.0.2,NotReady", exportedText, "",
		},
		{
			"headless with many readers, and a pod in the network of its node", func(s *Source) {
				makeHeadless(s)
				s.Readers = 1000
				s.Slices[0] = sliceOf("web", "http:8080", "10.244.0.9 hostname=web-1 zone=a", "172.18.0.2")
			},
			"headless ready [8080] 10.244.0.9,web-1,a", exportedText, "not in the pod network: 172.18.0.2",
		},
		{
			"headless without ports", func(s *Source) {
				makeHeadless(s)
				s.Services[0].Spec.Ports = nil
				s.Slices[0].Ports = nil
			},
			"headless ready [] 10.244.0.1 10.244.0.2,NotReady", exportedText, "",
		},
		{
			"headless with 257 pods", func(s *Source) {
				makeHeadless(s)
				s.Slices[0] = sliceOf("web", "http:8080", podAddresses(257)...)
			},
			"headless ready [8080] " + strings.Join(podAddresses(256), " "), exportedText,
			"(headless: 256), in 11 KiB: 10.244.1.1",
		},
		{
			"slices that do not count", func(s *Source) {
				ours := sliceOf("web", "http:8080", "10.244.0.5")
				ours.Labels[discoveryv1.LabelManagedBy] = ManagedBy
				six := sliceOf("web", "http:8080", "fd00::1")
				six.AddressType = discoveryv1.AddressTypeIPv6
				other := sliceOf("other", "http:8080", "10.244.0.6")
				s.Slices = append(s.Slices, ours, six, other, sliceOf("web", "grpc:8080", "10.244.0.7"))
			},
			"10.96.0.10 ready [8080] 10.244.0.1 10.244.0.2,NotReady", exportedText, "",
		},
		{
			"a named target port that differs between pods", func(s *Source) {
				addPort(s, corev1.ServicePort{Name: "dns", Protocol: "UDP", Port: 53})
				s.Slices = []*discoveryv1.EndpointSlice{
					sliceOf("web", "http:9090 dns:53/UDP", "10.244.0.3", "10.244.0.1"),
					sliceOf("web", "http:8080 dns:53", "10.244.0.2"),
				}
			},
			"10.96.0.10 ready [8080 0] 10.244.0.2 [9090 53] 10.244.0.1 10.244.0.3", exportedText, "",
		},
		{
			"two ports with one target", func(s *Source) {
				addPort(s, corev1.ServicePort{Name: "alt", Port: 81})
				s.Slices[0] = sliceOf("web", "http:8080 alt:8080", "10.244.0.1")
			},
			"10.96.0.10 ready [8080 8080] 10.244.0.1", exportedText, "",
		},
		{
			"states, and an address in several slices", func(s *Source) {
				addPort(s, corev1.ServicePort{Name: "alt", Port: 81})
				s.Slices = []*discoveryv1.EndpointSlice{
					sliceOf("web", "http:8080",
						"10.244.0.1 Terminating", "10.244.0.2 Serving", "10.244.0.3", "10.244.0.4 Terminating"),
					sliceOf("web", "http:8080", "10.244.0.1 NotReady", "10.244.0.2 Terminating", "10.244.0.3 NotReady"),
					sliceOf("web", "alt:8081", "10.244.0.3", "10.244.0.4"),
				}
			},
			"10.96.0.10 ready [0 8081] 10.244.0.4 [8080 0] 10.244.0.1,NotReady 10.244.0.2,Serving [8080 8081] 10.244.0.3",
			exportedText, "",
		},
		{
			"no endpoint is ready", func(s *Source) { s.Slices[0] = sliceOf("web", "http:8080", "10.244.0.1 Serving") },
			"10.96.0.10 [8080] 10.244.0.1,Serving", exportedText, "",
		},
		{
			"global network, no address yet", global,
			"none", "Published=False Pending, Conflict=False NoConflicts", "no global address yet",
		},
		{
			"global network, namespace not granted",
			func(s *Source) {
				global(s)
				s.MayExport = func(string) bool { return false }
			},
			"none",
			"Published=False NamespaceNotGranted, Conflict=False NoConflicts",
			"subctl join --export-namespaces",
		},
		{
			"global network", func(s *Source) {
				global(s)
				s.Ingress = append(s.Ingress,
					ingressOf(submarinerv1.TargetClusterIPService, "web", "242.1.0.5"),
					ingressOf(submarinerv1.TargetClusterIPService, "other", "242.1.0.6"),
				)
			},
			"242.1.0.5 ready", "Published=True Exported, Conflict=False NoConflicts", "web.shop.svc.clusterset.local",
		},
		{
			"global network, headless: pods without address wait",
			func(s *Source) {
				global(s)
				makeHeadless(s)
				s.Slices[0] = sliceOf("web", "http:8080",
					"10.244.0.1 pod=web-0 hostname=web-0", "10.244.0.2 pod=web-1", "10.244.0.3 pod=web-2 NotReady")
				s.Ingress = append(s.Ingress,
					ingressOf(submarinerv1.TargetHeadlessServicePod, "web-0", "242.1.0.9"),
					ingressOf(submarinerv1.TargetHeadlessServicePod, "web-1", ""),
					ingressOf(submarinerv1.TargetHeadlessServicePod, "web-2", "242.1.0.8"),
				)
			},
			"headless ready [8080] 242.1.0.8,NotReady 242.1.0.9,web-0",
			"Published=True Exported, Conflict=False NoConflicts",
			"",
		},
		{
			"global network, headless without selector", func(s *Source) {
				global(s)
				makeHeadless(s)
				s.Services[0].Spec.Selector = nil
				in := ingressOf(submarinerv1.TargetHeadlessServiceEndpoints, "web", "242.1.0.9")
				in.Annotations = map[string]string{submarinerv1.HeadlessEndpointAnnotation: "10.244.0.1"}
				s.Ingress = append(s.Ingress, in)
			},
			"headless ready [8080] 242.1.0.9", "Published=True Exported, Conflict=False NoConflicts", "",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := shop()
			test.change(s)
			e := only(t, s)
			require.Equal(t, test.record, recordText(e.Record))
			require.Equal(t, test.conditions, conditionsText(e.Conditions))
			require.Equal(t, e.Record == nil, e.Local == nil)
			messages := ""
			for _, c := range e.Conditions {
				require.Equal(t, int64(7), c.ObservedGeneration)
				require.NotEmpty(t, c.Message)
				messages += c.Message + "\n"
			}
			require.Contains(t, messages, test.message)
		})
	}
}

// The own cluster uses pods at their own addresses, whatever other clusters use.
func TestExportLocal(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Source)
		local  string
	}{
		{"address only", func(s *Source) { s.Readers = 51 }, "10.96.0.10 ready [8080] 10.244.0.1 10.244.0.2,NotReady"},
		{"many pods", func(s *Source) {
			s.Slices[0] = sliceOf("web", "http:8080", podAddresses(300)...)
		}, "10.96.0.10 ready [8080] " + strings.Join(podAddresses(300), " ")},
		{"pods in the network of their nodes", func(s *Source) {
			s.Slices[0] = sliceOf("web", "http:8080", "172.18.0.2")
		}, "10.96.0.10 ready [8080] 172.18.0.2"},
		{"global network", func(s *Source) {
			global(s)
			s.Ingress = append(s.Ingress, ingressOf(submarinerv1.TargetClusterIPService, "web", "242.1.0.5"))
		}, "10.96.0.10 ready [8080] 10.244.0.1 10.244.0.2,NotReady"},
		{"headless with a global network", func(s *Source) {
			global(s)
			makeHeadless(s)
		}, "headless ready [8080] 10.244.0.1 10.244.0.2,NotReady"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := shop()
			test.change(s)
			require.Equal(t, test.local, recordText(only(t, s).Local))
		})
	}
}

// All properties of a Service that its importers have.
func TestExportProperties(t *testing.T) {
	s := shop()
	s.Exports[0].Annotations = map[string]string{v1alpha1.SpreadAnnotation: "true", v1alpha1.DirectAnnotation: "true"}
	s.Exports[0].Labels = map[string]string{"team": "of the export"}
	s.Exports[0].Spec.ExportedLabels = map[string]string{"tier": "front"}
	s.Exports[0].Spec.ExportedAnnotations = map[string]string{"doc": "see <wiki>"}
	s.Services[0].Labels = map[string]string{"team": "of the Service"}
	spec := &s.Services[0].Spec
	spec.Ports = []corev1.ServicePort{
		{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, AppProtocol: new("kubernetes.io/h2c"), NodePort: 30080},
		{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53},
	}
	spec.SessionAffinity = corev1.ServiceAffinityClientIP
	spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
		ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(10))},
	}
	spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
	spec.TrafficDistribution = new(corev1.ServiceTrafficDistributionPreferClose)

	r := only(t, s).Record
	r.Endpoints = nil
	require.Equal(t, &v1alpha1.ExportedService{
		Namespace:  "shop",
		Name:       "web",
		ExportedAt: 1000,
		Ports: []v1alpha1.ExportedPort{
			{Name: "http", Port: 80, AppProtocol: "kubernetes.io/h2c"},
			{Name: "dns", Protocol: "UDP", Port: 53},
		},
		AffinitySeconds:       10,
		InternalTrafficPolicy: "Cluster",
		TrafficDistribution:   "PreferClose",
		Labels:                map[string]string{"tier": "front"},
		Annotations:           map[string]string{"doc": "see <wiki>"},
		Spread:                true,
		Direct:                true,
		Address:               "10.96.0.10",
		Ready:                 true,
	}, r)

	spec.SessionAffinityConfig = nil
	require.Equal(t, int32(10800), only(t, s).Record.AffinitySeconds, "the default of the API")
}

// Of several GlobalIngressIPs for the same, gateways use the oldest one.
func TestExportOldestGlobalAddress(t *testing.T) {
	s := shop()
	global(s)
	older := ingressOf(submarinerv1.TargetClusterIPService, "web", "242.1.0.6")
	older.CreationTimestamp = metav1.Unix(999, 0)
	s.Ingress = append(s.Ingress, ingressOf(submarinerv1.TargetClusterIPService, "web", "242.1.0.5"), older,
		ingressOf(submarinerv1.TargetClusterIPService, "web", "242.1.0.7"))
	require.Equal(t, "242.1.0.6 ready", recordText(only(t, s).Record))
}

// An export that is being deleted ends at once, and the others stay in order.
func TestExportWithoutDeleted(t *testing.T) {
	s := shop()
	s.Exports = []*mcsv1alpha1.ServiceExport{exportOf("api"), exportOf("db"), exportOf("web")}
	s.Exports[1].DeletionTimestamp = new(metav1.Unix(2000, 0))
	var names []string
	for _, e := range Export(*s) {
		names = append(names, e.Export.Name)
	}
	require.Equal(t, []string{"api", "web"}, names)
}

// What is known only when all exports are: conflicts, and that there is no room. The record stays,
// as it is tried again.
func TestConclude(t *testing.T) {
	key := types.NamespacedName{Namespace: "shop", Name: "web"}
	other := types.NamespacedName{Namespace: "shop", Name: "db"}
	conflict := Conflict{Reasons: []string{"PortConflict", "TypeConflict"}, Message: "west has port 81"}

	shared := []*v1alpha1.ExportedServices{sharedPage(0, 1, 2, metav1.ConditionTrue, "Shared")}

	e := only(t, shop())
	Conclude([]Exported{e}, map[types.NamespacedName]Conflict{other: conflict}, []types.NamespacedName{other}, shared)
	require.Equal(t, exportedText, conditionsText(e.Conditions))

	Conclude([]Exported{e}, map[types.NamespacedName]Conflict{key: conflict}, []types.NamespacedName{key}, shared)
	require.Equal(t, "Valid=True Valid, Ready=False TooManyExports, Conflict=True PortConflict,TypeConflict",
		conditionsText(e.Conditions))
	require.Contains(t, e.Conditions[1].Message, "64 pages of 12 KiB")
	require.Equal(t, "west has port 81", e.Conditions[2].Message)
	require.NotNil(t, e.Record)

	s := shop()
	global(s)
	s.Ingress = append(s.Ingress, ingressOf(submarinerv1.TargetClusterIPService, "web", "242.1.0.5"))
	e = only(t, s)
	Conclude([]Exported{e}, nil, []types.NamespacedName{key}, shared)
	require.Equal(t, "Published=False TooManyExports, Conflict=False NoConflicts", conditionsText(e.Conditions))
}

// A Service at a bound does not change between pods and its address with each pod: it gets pods
// again when it is well within the bounds.
func TestPodsAgain(t *testing.T) {
	published := []*v1alpha1.ExportedServices{{}}
	for _, step := range []struct {
		pods, readers int
		byAddress     bool
	}{
		{pods: 60, readers: 50},
		{pods: 64, readers: 50},
		{pods: 65, readers: 50, byAddress: true},
		{pods: 64, readers: 3, byAddress: true},
		{pods: 49, readers: 3, byAddress: true},
		{pods: 48, readers: 3},
		{pods: 64, readers: 50},
		{pods: 2, readers: 51, byAddress: true},
		{pods: 2, readers: 50, byAddress: true},
		{pods: 2, readers: 41, byAddress: true},
		{pods: 2, readers: 40},
		{pods: 2, readers: 50},
		{pods: 0, readers: 3, byAddress: true},
		{pods: 64, readers: 50},
	} {
		s := shop()
		var endpoints []string
		for i := range step.pods {
			endpoints = append(endpoints, fmt.Sprintf("10.244.1.%d", i+1))
		}
		s.Slices[0] = sliceOf("web", "http:8080", endpoints...)
		s.Readers = step.readers
		s.Published = published
		r := only(t, s).Record
		require.Equal(t, step.byAddress, len(r.Endpoints) == 0, "%+v", step)
		published[0].Spec.Services = []v1alpha1.ExportedService{*r}
	}
}

// sharedPage returns a page of generation 2 with the record of Service web, whose condition Shared
// has these values; without a status, it has no such condition.
func sharedPage(n, pages int, observed int64, status metav1.ConditionStatus, reason string) *v1alpha1.ExportedServices {
	page := &v1alpha1.ExportedServices{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ExportedServicesName("east", n), Generation: 2},
		Spec: v1alpha1.ExportedServicesSpec{
			ClusterID: "east", Pages: pages, Services: []v1alpha1.ExportedService{{Namespace: "shop", Name: "web"}},
		},
	}
	if status != "" {
		page.Status.Conditions = []metav1.Condition{{
			Type:               v1alpha1.ConditionShared,
			Status:             status,
			Reason:             reason,
			Message:            "why",
			ObservedGeneration: observed,
		}}
	}
	return page
}

// An export is Ready once the broker has its page, and not before; in a cluster with a global
// network it is Published.
func TestReadyWhenOnTheBroker(t *testing.T) {
	const pendingText = "Pending waiting until the broker has east-services-3: if that lasts, see subctl show gateways"
	type list = []*v1alpha1.ExportedServices
	for name, test := range map[string]struct {
		pages list
		was   bool // Ready before
		want  string
	}{
		"no page": {want: "Pending waiting until a page of exported Services has it"},
		"not reported": {
			pages: list{sharedPage(3, 4, 0, "", "")},
			want:  "Pending waiting until the gateway of this cluster reports that it has published east-services-3: if that lasts, see subctl show gateways; gateways of earlier versions do not report it",
		},
		"not reported, as by earlier versions": {pages: list{sharedPage(3, 4, 0, "", "")}, was: true},
		"on its way": {
			pages: list{sharedPage(3, 4, 1, metav1.ConditionFalse, "Pending")},
			want:  pendingText,
		},
		"added to a page on the broker": {
			pages: list{sharedPage(3, 4, 1, metav1.ConditionTrue, "Shared")},
			want:  pendingText,
		},
		"on the broker": {pages: list{sharedPage(3, 4, 2, metav1.ConditionTrue, "Shared")}},
		"its page changes": {
			pages: list{sharedPage(3, 4, 1, metav1.ConditionTrue, "Shared")},
			was:   true,
		},
		"on its way to a clusterset": {
			pages: list{sharedPage(3, 4, 2, metav1.ConditionFalse, "Pending")},
			was:   true,
			want:  pendingText,
		},
		"no place": {
			pages: list{sharedPage(3, 4, 2, metav1.ConditionFalse, "TooMany")},
			was:   true,
			want:  "NoPlaceOnBroker other clusters do not read it, as the broker has no place for east-services-3: why",
		},
		"lost by the broker": {
			pages: list{sharedPage(3, 4, 2, metav1.ConditionFalse, "Lost")},
			was:   true,
			want:  "Failed other clusters do not read it, as east-services-3 is not published: why",
		},
		"refused": {
			pages: list{sharedPage(3, 4, 2, metav1.ConditionFalse, "Mistake")},
			want:  "Failed other clusters do not read it, as east-services-3 is not published: why",
		},
		"moves to a page without a place": {
			pages: list{
				sharedPage(2, 4, 2, metav1.ConditionTrue, "Shared"),
				sharedPage(3, 4, 2, metav1.ConditionFalse, "TooMany"),
			},
		},
		"moves from one without a place to this": {
			pages: list{
				sharedPage(3, 4, 2, metav1.ConditionFalse, "TooMany"),
				sharedPage(2, 4, 2, metav1.ConditionTrue, "Shared"),
			},
		},
	} {
		for _, networks := range []string{"flat", "global"} {
			s := shop()
			of := string(mcsv1alpha1.ServiceExportConditionReady)
			if networks == "global" {
				global(s)
				s.Ingress = append(s.Ingress, ingressOf(submarinerv1.TargetClusterIPService, "web", "242.1.0.5"))
				of = ConditionPublished
			}
			if test.was {
				s.Exports[0].Status.Conditions = []metav1.Condition{{Type: of, Status: metav1.ConditionTrue}}
			}
			e := only(t, s)
			Conclude([]Exported{e}, nil, nil, test.pages)
			c := meta.FindStatusCondition(e.Conditions, of)
			if test.want == "" {
				require.Equal(t, metav1.ConditionTrue, c.Status, name)
				continue
			}
			require.Equal(t, metav1.ConditionFalse, c.Status, name)
			require.Equal(t, test.want, c.Reason+" "+c.Message, name)
		}
	}
}

// What keeps a Service from being exported is reported, whatever is on the broker.
func TestObstacleBeforePublication(t *testing.T) {
	s := shop()
	s.Services[0].Spec.Type = corev1.ServiceTypeExternalName
	e := only(t, s)
	before := conditionsText(e.Conditions)
	Conclude([]Exported{e}, nil, nil, nil)
	require.Equal(t, before, conditionsText(e.Conditions))
}

// Pages for which the broker has no place do not count, so that other clusters see the end of what
// the others export no more.
func TestPagesWithoutPlace(t *testing.T) {
	const yes, no, lost = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	var records []v1alpha1.ExportedService
	for i := range 170 {
		records = append(records, v1alpha1.ExportedService{
			Namespace: "shop", Name: fmt.Sprintf("s-%03d", i), Labels: map[string]string{"a": strings.Repeat("x", 250)},
		})
	}
	first, _ := Pages("east", nil, records)
	require.Len(t, first, 5)
	states := map[metav1.ConditionStatus]string{yes: "Shared", no: "TooMany", lost: "Lost", "": ""}
	for name, test := range map[string]struct {
		status [5]metav1.ConditionStatus
		counts [5]int
	}{
		"not known":                  {counts: [5]int{5, 5, 5, 5, 5}},
		"all":                        {[5]metav1.ConditionStatus{yes, yes, yes, yes, yes}, [5]int{5, 5, 5, 5, 5}},
		"three":                      {[5]metav1.ConditionStatus{yes, yes, yes, no, no}, [5]int{3, 3, 3, 4, 5}},
		"three, and another is new":  {[5]metav1.ConditionStatus{yes, yes, yes, no, ""}, [5]int{3, 3, 3, 4, 5}},
		"three, and the next is new": {[5]metav1.ConditionStatus{yes, yes, yes, "", no}, [5]int{4, 4, 4, 4, 5}},
		"the broker has lost two":    {[5]metav1.ConditionStatus{yes, yes, yes, lost, lost}, [5]int{5, 5, 5, 5, 5}},
		"not the first ones":         {[5]metav1.ConditionStatus{yes, no, yes, yes, yes}, [5]int{5, 5, 5, 5, 5}},
		"none":                       {[5]metav1.ConditionStatus{no, no, no, no, no}, [5]int{5, 5, 5, 5, 5}},
	} {
		for n, page := range first {
			page.Status = sharedPage(n, 5, 2, test.status[n], states[test.status[n]]).Status
		}
		var got [5]int
		pages, left := Pages("east", first, records)
		require.Empty(t, left)
		for n, page := range pages {
			got[n] = page.Spec.Pages
		}
		require.Equal(t, test.counts, got, name)
	}
}
