package services

import (
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

func TestImportOfOneCluster(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west"))
	w.settle()

	name := "derived-isrlchlhrq"
	require.Equal(t, name, DerivedName(web), "the rule of the API: other programs may rely on it")
	i := w.imported()
	require.Equal(t, map[string]string{submarinerv1.ManagedByLabel: submarinerv1.ManagedBy}, i.Labels)
	require.Equal(t, map[string]string{"multicluster.kubernetes.io/derived-service": name}, i.Annotations)
	require.Equal(t, mcsv1alpha1.ClusterSetIP, i.Spec.Type)
	require.Equal(t, []mcsv1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}, i.Spec.Ports)
	require.Equal(t, corev1.ServiceAffinityNone, i.Spec.SessionAffinity)
	require.Equal(t, mcsv1alpha1.EndpointSliceObjectsPresent, i.Status.EndpointSliceObjects)
	require.Equal(t, []string{"west"}, w.clusters())
	require.Equal(t, metav1.ConditionTrue, i.Status.Conditions[0].Status)
	require.Equal(t, "Ready", i.Status.Conditions[0].Reason)

	s := w.services[types.NamespacedName{Namespace: "shop", Name: name}]
	require.Equal(t, corev1.ServiceTypeClusterIP, s.Spec.Type)
	require.Empty(t, s.Spec.Selector)
	require.Equal(t, i.UID, s.OwnerReferences[0].UID)
	require.Equal(t, "web", s.Labels["multicluster.kubernetes.io/service-name"])
	require.Equal(t, "Auto", s.Annotations["service.kubernetes.io/topology-mode"])
	require.Equal(t, int32(80), s.Spec.Ports[0].TargetPort.IntVal)

	slice := w.apiServer.slices[types.NamespacedName{Namespace: "shop", Name: name + "-west-0"}]
	require.Equal(t, map[string]string{
		"kubernetes.io/service-name":                name,
		"multicluster.kubernetes.io/service-name":   "web",
		"multicluster.kubernetes.io/source-cluster": "west",
		"endpointslice.kubernetes.io/managed-by":    ManagedBy,
	}, slice.Labels)
	require.Equal(t, i.UID, slice.OwnerReferences[0].UID)
	require.Equal(t, discoveryv1.AddressTypeIPv4, slice.AddressType)
	require.Equal(t, serviceIP("west"), slice.Annotations[AddressAnnotation])
	require.Equal(t, []string{podIP("west", 1) + " ready serving http=8080"}, w.endpoints("west"))
	require.Nil(t, slice.Endpoints[0].NodeName)
	require.Nil(t, slice.Endpoints[0].TargetRef)
}

func TestImportExistsWhileAtLeastOneClusterExports(t *testing.T) {
	w := newWorld(t)
	w.view.Own = []v1alpha1.ExportedService{webOf("east")}
	w.export("west", webOf("west"))
	w.settle()
	address := w.imported().Spec.IPs
	require.ElementsMatch(t, []string{"east", "west"}, w.clusters())

	w.export("west")
	w.settle()
	require.Equal(t, []string{"east"}, w.clusters())
	require.Equal(t, address, w.imported().Spec.IPs)
	require.Empty(t, w.endpoints("west"))

	w.view.Own = nil
	w.settle()
	require.Empty(t, w.imports)
	require.Empty(t, w.services)
	require.Empty(t, w.apiServer.slices)
}

func TestImportHasTheAddressOfItsService(t *testing.T) {
	w := newWorld(t)
	w.noAddresses = true
	w.export("west", webOf("west"))
	w.settle()
	require.Empty(t, w.imported().Spec.IPs)
	require.Equal(t, "Pending", w.imported().Status.Conditions[0].Reason)

	w.noAddresses = false
	for _, s := range w.services {
		s.Spec.ClusterIP = "10.96.0.7"
	}
	w.settle()
	i := w.imported()
	require.Equal(t, []string{"10.96.0.7"}, i.Spec.IPs)
	require.Equal(t, []corev1.IPFamily{corev1.IPv4Protocol}, i.Spec.IPFamilies)
	require.Equal(t, "Ready", i.Status.Conditions[0].Reason)
}

func TestPropertiesAreCopied(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west", func(r *v1alpha1.ExportedService) {
		r.AffinitySeconds = 10
		r.InternalTrafficPolicy = "Local"
		r.TrafficDistribution = "PreferClose"
		r.Ports[0].AppProtocol = "kubernetes.io/h2c"
		r.Labels = map[string]string{"team": "a"}
		r.Annotations = map[string]string{"owner": "b"}
	}))
	w.settle()
	i := w.imported()
	require.Equal(t, corev1.ServiceAffinityClientIP, i.Spec.SessionAffinity)
	require.Equal(t, int32(10), *i.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds)
	require.Equal(t, corev1.ServiceInternalTrafficPolicyLocal, *i.Spec.InternalTrafficPolicy)
	require.Equal(t, "PreferClose", *i.Spec.TrafficDistribution)
	require.Equal(t, "kubernetes.io/h2c", *i.Spec.Ports[0].AppProtocol)
	require.Equal(t, "a", i.Labels["team"])
	require.Equal(t, "b", i.Annotations["owner"])
	for _, s := range w.services {
		require.Equal(t, corev1.ServiceAffinityClientIP, s.Spec.SessionAffinity)
		require.Equal(t, "kubernetes.io/h2c", *s.Spec.Ports[0].AppProtocol)
		require.Equal(t, corev1.ServiceInternalTrafficPolicyCluster, *s.Spec.InternalTrafficPolicy,
			"endpoints of others are on no node")
		require.NotContains(t, s.Labels, "team")
	}

	// What is exported no longer goes; what others have added stays.
	i.Labels["added"] = "by-somebody"
	w.export("west", webOf("west"))
	w.settle()
	require.NotContains(t, w.imported().Labels, "team")
	require.NotContains(t, w.imported().Annotations, "owner")
	require.Equal(t, "by-somebody", w.imported().Labels["added"])
	require.Nil(t, w.imported().Spec.InternalTrafficPolicy)
}

func TestHeadless(t *testing.T) {
	w := newWorld(t)
	w.view.Own = []v1alpha1.ExportedService{webOf("east", asHeadless)}
	w.export("west", webOf("west", asHeadless))
	w.settle()
	i := w.imported()
	require.Equal(t, mcsv1alpha1.Headless, i.Spec.Type)
	require.Empty(t, i.Spec.IPs)
	require.Empty(t, w.services)
	require.Equal(t, "Ready", i.Status.Conditions[0].Reason)
	require.NotContains(t, i.Annotations, "multicluster.kubernetes.io/derived-service")
	require.Len(t, w.apiServer.slices, 2)
	for _, s := range w.apiServer.slices {
		require.Contains(t, s.Labels, corev1.IsHeadlessService, "kube-proxy ignores it")
		require.Equal(t, DerivedName(web), s.Labels[discoveryv1.LabelServiceName])
		require.Equal(t, "web-0", *s.Endpoints[0].Hostname)
		require.Nil(t, s.Endpoints[0].Hints)
	}

	w.view.Own = nil
	w.export("west")
	w.settle()
	require.Empty(t, w.imports)
	require.Empty(t, w.apiServer.slices)
}

func TestHeadlessWithoutPorts(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west", asHeadless, ports()))
	w.settle()
	require.Equal(t, []string{podIP("west", 1) + " ready serving"}, w.endpoints("west"))
}

func TestTypeChanges(t *testing.T) {
	w := newWorld(t)
	w.view.Own = []v1alpha1.ExportedService{webOf("east")}
	w.export("west", webOf("west"))
	w.settle()

	w.view.Own = []v1alpha1.ExportedService{webOf("east", asHeadless)}
	w.settle()
	require.Equal(t, mcsv1alpha1.ClusterSetIP, w.imported().Spec.Type, "west exports it so")
	w.export("west", webOf("west", asHeadless))
	w.settle()
	require.Equal(t, mcsv1alpha1.Headless, w.imported().Spec.Type)
	require.Empty(t, w.services)
	require.Empty(t, w.imported().Spec.IPs)
	require.ElementsMatch(t, []string{"east", "west"}, w.clusters())

	w.view.Own = []v1alpha1.ExportedService{webOf("east")}
	w.export("west", webOf("west"))
	w.settle()
	require.Equal(t, mcsv1alpha1.ClusterSetIP, w.imported().Spec.Type)
	require.Len(t, w.imported().Spec.IPs, 1)
	for _, s := range w.apiServer.slices {
		require.NotContains(t, s.Labels, corev1.IsHeadlessService)
	}
}

func TestTypeChangesOfOneCluster(t *testing.T) {
	w := newWorld(t)
	for n := range 4 {
		w.export("west", webOf("west", func(r *v1alpha1.ExportedService) {
			r.Address = ""
			r.Headless = n%2 == 1
		}))
		w.settle()
		require.Len(t, w.services, 1-n%2)
		for _, s := range w.apiServer.slices {
			_, ignored := s.Labels[corev1.IsHeadlessService]
			require.Equal(t, n%2 == 1, ignored)
		}
	}
}

func TestNamespaceComesLaterAndGoes(t *testing.T) {
	w := newWorld(t)
	w.view.Namespaces = map[string]bool{}
	w.export("west", webOf("west"))
	w.settle()
	require.Empty(t, w.imports)
	require.Equal(t, []string{"west shop/web: waiting for namespace shop, which does not exist in this cluster"},
		w.refusals())

	w.view.Namespaces["shop"] = true
	w.settle()
	uid := w.imported().UID

	w.view.Namespaces = map[string]bool{}
	w.deleteNamespace("shop")
	w.settle()
	w.view.Namespaces["shop"] = true
	w.settle()
	require.NotEqual(t, uid, w.imported().UID)
	require.Equal(t, []string{podIP("west", 1) + " ready serving http=8080"}, w.endpoints("west"))
}

func TestDirect(t *testing.T) {
	direct := func(r *v1alpha1.ExportedService) { r.Direct = true }
	w := newWorld(t)
	w.export("west", webOf("west", direct))
	w.settle()
	require.Equal(t, "true", w.imported().Annotations["submariner.io/direct"])
	require.Len(t, w.imported().Spec.IPs, 1)

	w.export("west", webOf("west"))
	w.settle()
	require.NotContains(t, w.imported().Annotations, "submariner.io/direct")

	w.view.Direct = true
	w.settle()
	require.Equal(t, "true", w.imported().Annotations["submariner.io/direct"])
}

func TestObjectsOfOthersStay(t *testing.T) {
	other := types.NamespacedName{Namespace: "shop", Name: "other"}
	derived := types.NamespacedName{Namespace: "shop", Name: DerivedName(web)}
	meta := metav1.ObjectMeta{Namespace: "shop", Name: derived.Name, UID: "foreign"}

	t.Run("import", func(t *testing.T) {
		w := newWorld(t)
		w.imports[web] = &mcsv1alpha1.ServiceImport{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "foreign"},
		}
		w.export("west", webOf("west"))
		w.settle()
		require.Zero(t, w.writes)
		require.Equal(t, []string{"west shop/web: a ServiceImport of this name exists that subctl has not made: " +
			"delete it to import the Service"}, w.refusals())
	})
	t.Run("service", func(t *testing.T) {
		w := newWorld(t)
		w.services[derived] = &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.9"}}
		w.export("west", webOf("west"))
		w.settle()
		require.Equal(t, types.UID("foreign"), w.services[derived].UID)
		require.Empty(t, w.imported().Spec.IPs)
		require.Equal(t, "NameTaken", w.imported().Status.Conditions[0].Reason)
		require.Equal(t, "somebody else has made Service "+derived.Name+": delete or rename it",
			w.imported().Status.Conditions[0].Message)

		w.export("west")
		w.settle()
		require.Contains(t, w.services, derived)
		require.Empty(t, w.imports)
	})
	for name, change := range map[string]func(*world, *corev1.Service){
		"service without owner": func(_ *world, s *corev1.Service) { s.OwnerReferences = nil },
		"service without our label": func(_ *world, s *corev1.Service) {
			delete(s.Labels, submarinerv1.ManagedByLabel)
		},
		"service of another import": func(w *world, s *corev1.Service) {
			s.OwnerReferences[0].UID = w.imports[other].UID
		},
		"service owned by something else": func(_ *world, s *corev1.Service) {
			s.OwnerReferences[0].Kind = "Deployment"
			s.OwnerReferences[0].UID = "gone"
		},
		"service of another kind of import": func(_ *world, s *corev1.Service) {
			s.OwnerReferences[0].APIVersion = "example.com/v1"
			s.OwnerReferences[0].UID = "gone"
		},
		"orphan of another one's controllers": func(_ *world, s *corev1.Service) {
			s.Labels[submarinerv1.ManagedByLabel] = "x"
			s.OwnerReferences[0].UID = "gone"
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.export("west", webOf("west"), webOf("west", named("shop", "other")))
			w.settle()
			change(w, w.services[derived])
			writes := w.writes
			for range 3 {
				w.apply(w.plan()) // Nobody collects what has no owner.
			}
			require.Equal(t, writes+3, w.writes,
				"the EndpointSlice, the address of the import and its status, and nothing else")
			require.Equal(t, "NameTaken", w.imported().Status.Conditions[0].Reason)
			require.Empty(t, w.imported().Spec.IPs)
		})
	}
	for name, labels := range map[string]map[string]string{
		"slice":               {mcsv1alpha1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "somebody"},
		"slice without label": nil,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			m := meta
			m.Name += "-west-0"
			m.Labels = labels
			w.apiServer.slices[types.NamespacedName{Namespace: "shop", Name: m.Name}] = &discoveryv1.EndpointSlice{
				ObjectMeta: m,
			}
			w.export("west", webOf("west"))
			w.settle()
			require.Equal(t, "NameTaken", w.imported().Status.Conditions[0].Reason)
			w.export("west")
			w.settle()
			require.Len(t, w.apiServer.slices, 1)
		})
	}
}

func TestChangesOfOthersAreUndone(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west"))
	w.settle()
	name := types.NamespacedName{Namespace: "shop", Name: DerivedName(web)}

	for what, change := range map[string]func(){
		"ports of the import":   func() { w.imports[web].Spec.Ports[0].Port = 81 },
		"label of the Service":  func() { delete(w.services[name].Labels, mcsv1alpha1.LabelServiceName) },
		"selector":              func() { w.services[name].Spec.Selector = map[string]string{"app": "evil"} },
		"Service deleted":       func() { delete(w.services, name) },
		"type of the Service":   func() { w.services[name].Spec.Type = corev1.ServiceTypeNodePort },
		"import deleted":        func() { delete(w.imports, web) },
		"all deleted but slice": func() { delete(w.imports, web); delete(w.services, name) },
		"slices deleted":        func() { clear(w.apiServer.slices) },
		"address in a slice": func() {
			for _, s := range w.apiServer.slices {
				s.Endpoints[0].Addresses[0] = "192.0.2.1"
			}
		},
		"family of a slice": func() {
			for _, s := range w.apiServer.slices {
				s.AddressType = discoveryv1.AddressTypeIPv6
			}
		},
		"node in a slice": func() {
			for _, s := range w.apiServer.slices {
				s.Endpoints[0].NodeName = new("node")
			}
		},
		"status": func() { w.imports[web].Status = mcsv1alpha1.ServiceImportStatus{} },
	} {
		t.Run(what, func(t *testing.T) {
			change()
			w.settle()
			require.Equal(t, int32(80), w.imported().Spec.Ports[0].Port)
			require.Equal(t, []string{"west"}, w.clusters())
			require.Equal(t, []string{w.services[name].Spec.ClusterIP}, w.imported().Spec.IPs)
			require.Equal(t, corev1.ServiceTypeClusterIP, w.services[name].Spec.Type)
			require.Empty(t, w.services[name].Spec.Selector)
			require.Equal(t, []string{podIP("west", 1) + " ready serving http=8080"}, w.endpoints("west"))
		})
	}
}

func TestDeletedObjectsAreMadeAnew(t *testing.T) {
	now := metav1.Now()
	name := types.NamespacedName{Namespace: "shop", Name: DerivedName(web)}
	slice := types.NamespacedName{Namespace: "shop", Name: name.Name + "-west-0"}

	t.Run("import that is being deleted", func(t *testing.T) {
		w := newWorld(t)
		w.export("west", webOf("west"))
		w.settle()
		w.imported().DeletionTimestamp = &now
		w.export("west", webOf("west", notReady))
		require.True(t, w.plan().empty(), "it is made anew when it is gone")
		delete(w.imports, web)
		w.settle()
		require.Equal(t, []string{podIP("west", 1) + " http=8080"}, w.endpoints("west"))
	})
	t.Run("Service that is being deleted", func(t *testing.T) {
		w := newWorld(t)
		w.export("west", webOf("west"))
		w.settle()
		w.services[name].DeletionTimestamp = &now
		w.settle()
		require.Empty(t, w.imported().Spec.IPs)
		require.Equal(t, "Pending", w.imported().Status.Conditions[0].Reason)
		delete(w.services, name)
		w.settle()
		require.Len(t, w.imported().Spec.IPs, 1)
	})
	t.Run("slice that is being deleted", func(t *testing.T) {
		w := newWorld(t)
		w.export("west", webOf("west"))
		w.settle()
		w.apiServer.slices[slice].DeletionTimestamp = &now
		w.export("west", webOf("west", notReady))
		require.True(t, w.plan().empty())
		delete(w.apiServer.slices, slice)
		w.settle()
		require.Equal(t, []string{podIP("west", 1) + " http=8080"}, w.endpoints("west"))
	})
	t.Run("Service of an import of the same name that is gone", func(t *testing.T) {
		w := newWorld(t)
		w.export("west", webOf("west"))
		w.settle()
		w.imported().UID = "new"
		w.apply(w.plan())
		require.Equal(t, "Pending", w.imported().Status.Conditions[0].Reason)
		w.settle()
		require.Equal(t, types.UID("new"), w.services[name].OwnerReferences[0].UID)
		require.Equal(t, types.UID("new"), w.apiServer.slices[slice].OwnerReferences[0].UID)
	})
	t.Run("Service and slices of an import that is gone", func(t *testing.T) {
		w := newWorld(t)
		w.export("west", webOf("west"))
		w.settle()
		before := w.services[name].UID
		delete(w.imports, web)
		for range 4 { // Kubernetes collects nothing in time.
			w.apply(w.plan())
			for _, c := range w.imported().Status.Conditions {
				require.NotEqual(t, "NameTaken", c.Reason)
			}
		}
		require.True(t, w.plan().empty())
		require.NotEqual(t, before, w.services[name].UID)
		require.Equal(t, w.imported().UID, w.apiServer.slices[slice].OwnerReferences[0].UID)
	})
}

func TestTransitionTimeStays(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west"))
	w.settle()
	before := w.imported().Status.Conditions[0].LastTransitionTime
	w.imported().Status.Conditions = append(w.imported().Status.Conditions,
		metav1.Condition{Type: "Other", Status: metav1.ConditionTrue, LastTransitionTime: before})
	w.export("north", webOf("north"))
	w.settle()
	require.Len(t, w.imported().Status.Conditions, 2, "conditions of others stay")
	for _, c := range w.imported().Status.Conditions {
		require.Equal(t, before, c.LastTransitionTime)
	}
}
