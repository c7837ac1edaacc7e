package services

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

func TestHostileRecords(t *testing.T) {
	ip := func(ip string) func(*v1alpha1.ExportedService) {
		return func(r *v1alpha1.ExportedService) { r.Endpoints[0].Pods[0].IP = ip }
	}
	address := func(ip string) func(*v1alpha1.ExportedService) {
		return func(r *v1alpha1.ExportedService) { r.Address = ip }
	}
	pod := func(change func(*v1alpha1.ExportedEndpoint)) func(*v1alpha1.ExportedService) {
		return func(r *v1alpha1.ExportedService) { change(&r.Endpoints[0].Pods[0]) }
	}
	many := func(n int) func(*v1alpha1.ExportedService) {
		return func(r *v1alpha1.ExportedService) {
			for at := range n {
				r.Endpoints[0].Pods = append(r.Endpoints[0].Pods,
					v1alpha1.ExportedEndpoint{IP: fmt.Sprintf("10.1.%d.%d", 1+at/250, at%250)})
			}
		}
	}
	const outside = "is in no pod network, or global network, that the cluster announces"
	for name, c := range map[string]struct {
		change func(*v1alpha1.ExportedService)
		reason string
	}{
		"namespace with a path":      {named("../kube-system", "web"), "DNS labels"},
		"name with a path":           {named("shop", "web/../x"), "DNS labels"},
		"name with a dot":            {named("shop", "a.b"), "DNS labels"},
		"long name":                  {named("shop", strings.Repeat("a", 64)), "DNS labels"},
		"pod of another cluster":     {ip("10.2.0.1"), "10.2.0.1 " + outside},
		"pod of this cluster":        {ip("10.0.0.5"), "10.0.0.5 " + outside},
		"pod in its Service network": {ip("10.101.0.9"), "10.101.0.9 " + outside},
		"metadata service":           {ip("169.254.169.254"), "of a kind that no endpoint has"},
		"loopback":                   {ip("127.0.0.1"), "of a kind that no endpoint has"},
		"multicast":                  {ip("224.0.0.1"), "of a kind that no endpoint has"},
		"unspecified":                {ip("0.0.0.0"), "of a kind that no endpoint has"},
		"broadcast":                  {ip("255.255.255.255"), "of a kind that no endpoint has"},
		"IPv6":                       {ip("fd00::1"), "is no IPv4 address"},
		"IPv4 in IPv6":               {ip("::ffff:10.1.0.1"), "is no IPv4 address"},
		"octal":                      {ip("010.1.0.1"), "is no IPv4 address"},
		"no address":                 {ip(""), "is no IPv4 address"},
		"address of another cluster": {address("10.102.0.1"), "is in no Service network"},
		"address of a pod":           {address("10.1.0.1"), "is in no Service network"},
		"no address and no pods": {
			func(r *v1alpha1.ExportedService) { r.Address = ""; r.Endpoints = nil },
			"neither an address nor endpoints",
		},
		"65 pods": {many(64), "65 endpoints, more than 64"},
		"257 pods, headless": {
			func(r *v1alpha1.ExportedService) { asHeadless(r); many(256)(r) },
			"257 endpoints, more than 256",
		},
		"33 ports": {func(r *v1alpha1.ExportedService) {
			var list []string
			for n := range 33 {
				list = append(list, fmt.Sprintf("p%d %d/TCP 1", n, n+1))
			}
			ports(list...)(r)
		}, "more than 32 ports"},
		"no ports":             {ports(), "no ports"},
		"port 0":               {ports("a 0/TCP 1"), "port 0 is no port number"},
		"port 65536":           {ports("a 65536/TCP 1"), "port 65536 is no port number"},
		"protocol":             {ports("a 1/ICMP 1"), "must be TCP, UDP or SCTP"},
		"name of a port":       {ports("A_b 1/TCP 1"), "is no DNS label"},
		"no name":              {ports("- 1/TCP 1", "b 2/TCP 2"), "no name beside other ports"},
		"port twice":           {ports("a 1/TCP 1", "b 1/TCP 2"), "port 1 is there twice"},
		"name of a port twice": {ports("a 1/TCP 1", "a 2/TCP 2"), "port 2 is there twice"},
		"target":               {ports("a 1/TCP 65536"), "target 65536 is no port number"},
		"negative target":      {ports("a 1/TCP -1"), "target -1 is no port number"},
		"targets missing": {
			func(r *v1alpha1.ExportedService) { r.Endpoints[0].Targets = nil },
			"a target for each port",
		},
		"targets in excess": {
			func(r *v1alpha1.ExportedService) { r.Endpoints[0].Targets = []int32{1, 2} },
			"a target for each port",
		},
		"appProtocol": {
			func(r *v1alpha1.ExportedService) { r.Ports[0].AppProtocol = "a b" },
			"no qualified name",
		},
		"hostname":          {pod(func(p *v1alpha1.ExportedEndpoint) { p.Hostname = "a.b" }), "hostname"},
		"zone":              {pod(func(p *v1alpha1.ExportedEndpoint) { p.Zone = "a b" }), "zone"},
		"state":             {pod(func(p *v1alpha1.ExportedEndpoint) { p.State = "Great" }), "state"},
		"affinity":          {func(r *v1alpha1.ExportedService) { r.AffinitySeconds = 86401 }, "affinitySeconds"},
		"negative affinity": {func(r *v1alpha1.ExportedService) { r.AffinitySeconds = -1 }, "affinitySeconds"},
		"internalTrafficPolicy": {
			func(r *v1alpha1.ExportedService) { r.InternalTrafficPolicy = "None" },
			"internalTrafficPolicy",
		},
		"trafficDistribution": {
			func(r *v1alpha1.ExportedService) { r.TrafficDistribution = "a b" },
			"trafficDistribution",
		},
		"large labels": {
			func(r *v1alpha1.ExportedService) { r.Labels = map[string]string{"a": strings.Repeat("a", 4096)} },
			"more than 4096 bytes",
		},
		"large annotations": {
			func(r *v1alpha1.ExportedService) { r.Annotations = map[string]string{"a": strings.Repeat("a", 4096)} },
			"more than 4096 bytes",
		},
		"one bad pod among good ones": {func(r *v1alpha1.ExportedService) {
			r.Endpoints[0].Pods = append(r.Endpoints[0].Pods, v1alpha1.ExportedEndpoint{IP: "192.0.2.1"})
		}, "192.0.2.1 " + outside},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.export("west", webOf("west", c.change), webOf("west", named("shop", "good")))
			w.settle()
			require.Len(t, w.refusals(), 1)
			require.Contains(t, w.refusals()[0], c.reason)
			require.Len(t, w.imports, 1, "other records of the cluster count")
			require.Contains(t, w.imports, types.NamespacedName{Namespace: "shop", Name: "good"})

			// It takes nothing away from others either.
			w.export("north", webOf("north"))
			w.settle()
			require.Equal(t, []string{"north"}, w.clusters())

			// Its own good record of before is no reason to keep what was made of it.
			w.export("west", webOf("west"))
			w.settle()
			require.Equal(t, []string{"north", "west"}, w.clusters())
			w.export("west", webOf("west", c.change), webOf("west", named("shop", "good")))
			w.settle()
			require.Equal(t, []string{"north"}, w.clusters())
		})
	}
}

// TestHostileRandomRecords replaces values of good records by others. Whatever they are, the API
// server accepts what is made of it, and connections lead into networks of the cluster.
func TestHostileRandomRecords(t *testing.T) {
	texts := []string{
		"",
		"a",
		"-",
		"A",
		"a.b",
		"a/b",
		"../x",
		"a b",
		"\x00",
		"é",
		"10.1.0.9",
		"10.0.0.1",
		"127.0.0.1",
		"::1",
		"Local",
		"TCP",
		"kubernetes.io/a",
		strings.Repeat("a", 63),
		strings.Repeat("a", 64),
		strings.Repeat("a", 5000),
	}
	numbers := []int64{-1 << 31, -1, 0, 1, 80, 8080, 65535, 65536, 86400, 1<<31 - 1}
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 2))
		record := webOf("west", ports("http 80/TCP 8080", "dns 53/UDP 53"), func(r *v1alpha1.ExportedService) {
			r.Labels = map[string]string{"a": "b"}
			r.Annotations = map[string]string{"a": "b"}
			r.Ports[0].AppProtocol = "http"
			r.Endpoints[0].Pods = append(r.Endpoints[0].Pods,
				v1alpha1.ExportedEndpoint{IP: "10.1.0.2", Hostname: "a", Zone: "a"})
			r.Headless = random.IntN(3) == 0
		})
		for range 1 + random.IntN(2) {
			text := texts[random.IntN(len(texts))]
			number := int32(numbers[random.IntN(len(numbers))])
			pod := &record.Endpoints[0].Pods[random.IntN(2)]
			port := &record.Ports[random.IntN(2)]
			fields := []*string{
				&record.Namespace,
				&record.Name,
				&record.InternalTrafficPolicy,
				&record.TrafficDistribution,
				&record.Address,
				&pod.IP,
				&pod.Hostname,
				&pod.Zone,
				(*string)(&pod.State),
				&port.Name,
				&port.Protocol,
				&port.AppProtocol,
			}
			*fields[random.IntN(len(fields))] = text
			switch random.IntN(8) {
			case 0:
				record.Labels[text] = texts[random.IntN(len(texts))]
			case 1:
				record.Annotations[text] = texts[random.IntN(len(texts))]
			case 2:
				record.AffinitySeconds = number
			case 3:
				port.Port = number
			case 4:
				record.Endpoints[0].Targets[random.IntN(2)] = number
			}
		}
		w := newWorld(t)
		w.view.Namespaces = map[string]bool{"shop": true, record.Namespace: true}
		w.export("west", record)
		w.export("north", webOf("north", exportedAt(5000)))
		w.settle()
		require.NotEmpty(t, w.clusters())
		for _, s := range w.apiServer.slices {
			for _, e := range s.Endpoints {
				require.Regexp(t, `^10\.(1|2|101|102)\.`, e.Addresses[0], "seed %d", seed)
			}
		}
	}
}

func TestHostileNetworks(t *testing.T) {
	// A member announces the networks of this cluster, of a node, and of another cluster.
	for ip, reason := range map[string]string{
		"10.0.0.7":  "is in one of this cluster's own networks",
		"10.96.0.1": "is in one of this cluster's own networks",
		"192.0.2.1": "is the address of a node, or an API server, of this cluster",
		"10.2.0.9":  "leads to cluster north",
	} {
		w := newWorld(t)
		w.export("north")
		w.member("north").Routed = prefixes("10.2.0.0/16", "10.102.0.0/16")
		w.export("west", webOf("west", withPods(v1alpha1.ExportedEndpoint{IP: ip})))
		w.member("west").PodNetworks = prefixes("0.0.0.0/0")
		w.member("west").Routed = prefixes("10.1.0.0/16", "10.101.0.0/16")
		w.settle()
		require.Equal(t, []string{"west shop/web: address " + ip + " " + reason}, w.refusals())
		require.Empty(t, w.imports)
	}
}

// A node, or a member that has come later, claims an address of a cluster that this one is
// connected to.
func TestHostileClaimsOfAddresses(t *testing.T) {
	w := newWorld(t)
	w.export("north")
	w.export("west", webOf("west"))
	w.member("west").Routed = prefixes("10.1.0.0/16", "10.101.0.0/16")
	w.settle()
	before := w.endpoints("west")
	require.NotEmpty(t, before)
	w.view.Forbidden = append(w.view.Forbidden, prefixes(podIP("west", 1)+"/32", serviceIP("west")+"/32")...)
	w.member("north").PodNetworks = prefixes("10.0.0.0/8")
	w.settle()
	require.Equal(t, before, w.endpoints("west"))
}

func TestHostileNamespaces(t *testing.T) {
	w := newWorld(t)
	w.view.MayExport = func(ns string) bool { return ns == "shop" }
	w.view.Namespaces["kube-system"] = true
	w.export("west", webOf("west", named("kube-system", "kube-dns")), webOf("west"))
	w.settle()
	require.Len(t, w.imports, 1)
	require.Equal(
		t,
		[]string{
			"west kube-system/kube-dns: the grant of the cluster does not allow exports from namespace kube-system",
		},
		w.refusals(),
	)
}

func TestHostileLabelsControlNothing(t *testing.T) {
	keys := map[string]string{
		"kubernetes.io/x":                         "a",
		"service.kubernetes.io/topology-mode":     "Disabled",
		"external-dns.alpha.kubernetes.io/target": "a",
		"gateway.networking.k8s.io/x":             "a",
		"submariner.io/direct":                    "true",
		"argocd.argoproj.io/instance":             "a",
		"argocd.argoproj.io/tracking-id":          "a",
		submarinerv1.ManagedByLabel:               "somebody",
		"multicluster.kubernetes.io/service-name": "other",
		"service.kubernetes.io/headless":          "a",
	}
	w := newWorld(t)
	w.export("west", webOf("west"))
	w.settle()
	labels := w.imported().Labels
	annotations := w.imported().Annotations
	w.export("west", webOf("west", func(r *v1alpha1.ExportedService) {
		r.Labels = keys
		r.Annotations = keys
	}))
	w.settle()
	require.Equal(t, labels, w.imported().Labels)
	require.Equal(t, annotations, w.imported().Annotations)
	for _, s := range w.services {
		require.Len(t, s.Labels, 2)
		require.Len(t, s.Annotations, 1)
	}
}

func TestHostileDuplicates(t *testing.T) {
	w := newWorld(t)
	w.publish("west",
		page("west", 1, 2, webOf("west", ports("http 81/TCP 81"))),
		page("west", 0, 2, webOf("west"), webOf("west", ports("http 82/TCP 82"))))
	w.settle()
	require.Equal(t, []string{"http 80/TCP"}, w.ports())
	require.Equal(t,
		[]string{"west shop/web: the cluster exports it twice", "west shop/web: the cluster exports it twice"},
		w.refusals())
}

func TestHostilePages(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.ExportedServices){
		"of another cluster": func(p *v1alpha1.ExportedServices) { p.Spec.ClusterID = "north" },
		"name of another cluster": func(p *v1alpha1.ExportedServices) {
			p.Name = v1alpha1.ExportedServicesName("north", 0)
		},
		"no number": func(p *v1alpha1.ExportedServices) { p.Name = "west-services-x" },
		"number beyond the count": func(p *v1alpha1.ExportedServices) {
			p.Name = v1alpha1.ExportedServicesName("west", 1)
		},
		"negative number of pages": func(p *v1alpha1.ExportedServices) { p.Spec.Pages = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := page("west", 0, 1, webOf("west"))
			change(p)
			w.publish("west", p)
			w.settle()
			require.Empty(t, w.imports)
		})
	}
	t.Run("this cluster's ID", func(t *testing.T) {
		w := newWorld(t)
		w.publish("east", page("east", 0, 1, webOf("west")))
		w.member("east").PodNetworks = prefixes("10.1.0.0/16")
		w.member("east").ServiceNetworks = prefixes("10.101.0.0/16")
		w.settle()
		require.Empty(t, w.imports)
	})
	t.Run("huge number of pages", func(t *testing.T) {
		w := newWorld(t)
		w.publish("west", page("west", 0, 1<<40, webOf("west")))
		w.settle()
		require.Len(t, w.imports, 1)
	})
}

func TestHostileHealth(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west"))
	w.export("north", webOf("north"))
	w.member("west").Unreachable = true // It claims to be ready.
	w.settle()
	require.Equal(t, []string{podIP("west", 1) + " http=8080"}, w.endpoints("west"))
}

func TestHostileObjectsOfUsers(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west"))
	w.settle()
	before := w.endpoints("west")

	// A user makes slices of the import, with our labels or with others, and an import by hand.
	for n, manager := range []string{ManagedBy, "somebody"} {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("evil-%d", n), Labels: map[string]string{
				discoveryv1.LabelServiceName:   DerivedName(web),
				discoveryv1.LabelManagedBy:     manager,
				mcsv1alpha1.LabelServiceName:   "web",
				mcsv1alpha1.LabelSourceCluster: "west",
			}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"198.51.100.1"}}},
		}
		w.apiServer.slices[keyOf(s)] = s
	}
	hand := types.NamespacedName{Namespace: "db", Name: "hand-made"}
	w.imports[hand] = &mcsv1alpha1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "hand-made"}}
	forged := types.NamespacedName{Namespace: "db", Name: "forged"}
	w.imports[forged] = &mcsv1alpha1.ServiceImport{ObjectMeta: metav1.ObjectMeta{
		Namespace: "db",
		Name:      "forged",
		UID:       "forged",
		Labels:    map[string]string{submarinerv1.ManagedByLabel: submarinerv1.ManagedBy},
	}}
	w.settle()
	require.NotContains(t, w.apiServer.slices, types.NamespacedName{Namespace: "shop", Name: "evil-0"},
		"it has our label: not wanted")
	require.Contains(t, w.apiServer.slices, types.NamespacedName{Namespace: "shop", Name: "evil-1"},
		"it belongs to somebody else")
	require.Contains(t, w.imports, hand)
	require.NotContains(t, w.imports, forged)
	delete(w.apiServer.slices, types.NamespacedName{Namespace: "shop", Name: "evil-1"})
	require.Equal(t, before, w.endpoints("west"))
}

// A member chooses the name of a Service so that its derived Service has the name of another one,
// as 50 bits of a hash allow, and a user makes a Service of such a name: neither gets the endpoints
// of the other.
func TestHostileDerivedName(t *testing.T) {
	name := types.NamespacedName{Namespace: "shop", Name: DerivedName(web)}
	for _, labels := range []map[string]string{
		nil, {submarinerv1.ManagedByLabel: submarinerv1.ManagedBy, mcsv1alpha1.LabelServiceName: "other"},
	} {
		w := newWorld(t)
		w.export("north", webOf("north", named("shop", "other")))
		w.settle()
		owner := w.imports[types.NamespacedName{Namespace: "shop", Name: "other"}]
		w.services[name] = &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Namespace:       name.Namespace,
			Name:            name.Name,
			Labels:          labels,
			OwnerReferences: []metav1.OwnerReference{ownerOf(owner)},
		}}
		w.export("west", webOf("west"))
		w.settle()
		require.Empty(t, w.endpoints("west"))
		require.Equal(t, reasonNameTaken, w.imported().Status.Conditions[0].Reason)
	}
}

func TestImportRules(t *testing.T) {
	rule := func(namespaces, services, clusters string) v1alpha1.ImportRule {
		return v1alpha1.ImportRule{
			Namespaces: strings.Fields(namespaces),
			Services:   strings.Fields(services),
			Clusters:   strings.Fields(clusters),
		}
	}
	for name, c := range map[string]struct {
		rules []v1alpha1.ImportRule
		want  bool
	}{
		"none":                    {nil, true},
		"another namespace":       {[]v1alpha1.ImportRule{rule("db", "", "")}, true},
		"another Service":         {[]v1alpha1.ImportRule{rule("shop", "api*", "")}, true},
		"this cluster":            {[]v1alpha1.ImportRule{rule("shop", "", "west north")}, true},
		"another cluster":         {[]v1alpha1.ImportRule{rule("shop", "", "north")}, false},
		"no cluster":              {[]v1alpha1.ImportRule{rule("shop", "", "")}, false},
		"prefix":                  {[]v1alpha1.ImportRule{rule("sh*", "w*", "north")}, false},
		"all":                     {[]v1alpha1.ImportRule{rule("*", "", "north")}, false},
		"one of two allows":       {[]v1alpha1.ImportRule{rule("*", "", "north"), rule("shop", "web", "west")}, true},
		"a prefix without a star": {[]v1alpha1.ImportRule{rule("sh", "", "north")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.view.Own = []v1alpha1.ExportedService{webOf("east")}
			w.export("west", webOf("west"))
			w.settle()
			w.view.Rules = c.rules
			w.settle()
			if c.want {
				require.Equal(t, []string{"east", "west"}, w.clusters())
				return
			}
			require.Equal(t, []string{"east"}, w.clusters(), "own exports are no imports")
			require.Empty(t, w.endpoints("west"))
			require.Equal(
				t,
				[]string{
					"west shop/web: spec.serviceDiscovery.imports of this cluster does not allow to import it from the cluster",
				},
				w.refusals(),
			)
		})
	}
}
