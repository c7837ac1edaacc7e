//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// The conformance suite of the Multi-Cluster Services API is a Go module that no proxy serves.
// These are tests of our own of what each of its tests requires, in the order of the suite, within
// its time limits. As in the suite, each test has a namespace of its own in all clusters, the first
// cluster is the one that exports, and everything is written and read in version v1beta1.
const (
	required = "Required"
	optional = "Optional"

	importedWithin = 20 * time.Second // imports, conditions and answers of DNS
	slicedWithin   = 60 * time.Second
	unchangedFor   = 5 * time.Second
	inARow         = 10 // connections that must succeed, within importedWithin each
)

// conformanceCase is a test of the suite.
type conformanceCase struct {
	class, name string
	// given changes what is deployed and exported before the test; nil changes nothing.
	given func(*hello)
	test  func(*testing.T, *hello)
}

var conformanceCases = []conformanceCase{
	{required, "import exists while a cluster exports", nil, conformsWhileExported},
	{required, "ClusterIP imported as ClusterSetIP", nil, conformsClusterSetIP},
	{required, "session affinity", nil, conformsAffinity},
	{required, "internalTrafficPolicy", func(h *hello) {
		h.services[0].Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
	}, conformsTrafficPolicy},
	{required, "trafficDistribution", func(h *hello) {
		h.services[0].Spec.TrafficDistribution = new(corev1.ServiceTrafficDistributionPreferClose)
	}, conformsTrafficDistribution},
	{required, "addresses of the import", nil, conformsAddresses},
	{required, "ports of the import", nil, conformsPorts},
	{required, "union of ports", func(h *hello) {
		h.exporters = 2
		h.services[1].Spec.Ports[1] = corev1.ServicePort{Name: "sctp", Port: 142, Protocol: corev1.ProtocolSCTP}
	}, conformsUnionOfPorts},
	{required, "ports in conflict", func(h *hello) {
		h.exporters = 2
		h.services[1].Spec.Ports = h.services[1].Spec.Ports[:1]
		h.services[1].Spec.Ports[0].Port++
	}, conformsPortConflict},
	{required, "headless imported as Headless", headless, conformsHeadless},
	{required, "headless import without addresses", headless, conformsNoAddress},
	{required, "ExternalName refused", func(h *hello) {
		h.services[0].Spec.Type = corev1.ServiceTypeExternalName
		h.services[0].Spec.ExternalName = "example.com"
		h.services[0].Spec.IPFamilyPolicy = nil
	}, conformsExternalName},
	{required, "headless in one cluster only", func(h *hello) {
		h.exporters = 2
		h.services[1].Spec.ClusterIP = corev1.ClusterIPNone
	}, conformsTypeConflict},
	{required, "not exported, not reachable", func(h *hello) { h.exporters = 0 }, conformsNotExported},
	{optional, "exported labels and annotations", withLabels, conformsLabels},
	{optional, "labels and annotations in conflict", func(h *hello) {
		withLabels(h)
		h.exporters = 2
		h.exports[1].Spec.ExportedLabels = map[string]string{"label-2": "true"}
		h.exports[1].Spec.ExportedAnnotations = map[string]string{"annotation-2": "true"}
	}, conformsLabelConflict},
	{optional, "reachable by name", nil, conformsReachable},
	{optional, "only the exporter is reached", nil, conformsExporterOnly},
	{optional, "port name with two numbers", func(h *hello) {
		h.exporters = 2
		h.services[1].Spec.Ports = otherPort("tcp")
	}, conformsSamePortName},
	{optional, "each port from its exporter", func(h *hello) {
		h.exporters = 2
		h.services[1].Spec.Ports = otherPort("tcp2")
	}, conformsOtherPortName},
	{optional, "A of the Service", nil, conformsA},
	{optional, "SRV of the Service", nil, conformsSRV},
	{optional, "cluster.local is of the own cluster", nil, conformsClusterLocal},
	{optional, "A of a headless Service", headlessPods, conformsHeadlessA},
	{optional, "A of a pod of a StatefulSet", func(h *hello) {
		headlessPods(h)
		h.stateful = true
	}, conformsPodName},
	{optional, "SRV of a headless Service", headlessPods, conformsHeadlessSRV},
	{optional, "EndpointSlices", nil, conformsSlices},
}

func headless(h *hello) { h.services[0].Spec.ClusterIP = corev1.ClusterIPNone }

func headlessPods(h *hello) {
	headless(h)
	h.replicas = 2
}

func withLabels(h *hello) {
	h.services[0].Labels = map[string]string{"of-service": "true"}
	h.services[0].Annotations = map[string]string{"of-service": "true"}
	h.exports[0].Labels = map[string]string{"of-export": "true"}
	h.exports[0].Annotations = map[string]string{"of-export": "true"}
	h.exports[0].Spec.ExportedLabels = map[string]string{"label": "true"}
	h.exports[0].Spec.ExportedAnnotations = map[string]string{"annotation": "true"}
}

func otherPort(name string) []corev1.ServicePort {
	return []corev1.ServicePort{{Name: name, Port: 4242, TargetPort: intstr.FromInt32(42)}}
}

// Services of the Multi-Cluster Services API are as the conformance suite of the API wants them.
func TestConformance(t *testing.T) {
	if !serviceDiscovery {
		t.Skip("E2E_SERVICES is not set: make e2e-services runs this test in a lab of its own")
	}
	evidence(t, slices.Concat(nodes("cluster1"), nodes("cluster2"), nodes("cluster3")), clusters)
	servicesJoined(t)
	members := conformingClusters(t)
	t.Run("suite", func(t *testing.T) { // ends when all its tests have ended
		for _, c := range conformanceCases {
			t.Run(c.class+": "+c.name, func(t *testing.T) {
				t.Parallel() // most of them wait most of the time
				h := newHello(members)
				if c.given != nil {
					c.given(h)
				}
				h.start(t)
				c.test(t, h)
			})
		}
	})
	t.Run("names by CoreDNS", func(t *testing.T) { namesByCoreDNS(t, members) })
}

// conforming is a cluster in which the suite runs.
type conforming struct {
	client.Client
	name string
	pod  pod // asks for names, and connects
}

func conformingClusters(t *testing.T) (out []conforming) {
	t.Helper()
	for _, c := range clusters {
		api := api(t, c)
		require.NoError(t, mcsv1beta1.Install(api.Scheme()))
		out = append(out, conforming{api, c, clientIn(t, c)})
	}
	return out
}

// hello is what each test begins with: a Service of that name, in a namespace that all clusters
// have.
type hello struct {
	clusters  []conforming
	namespace string
	// services and exports are those of the first two clusters.
	services [2]*corev1.Service
	exports  [2]*mcsv1beta1.ServiceExport
	// exporters is the number of clusters that export the Service when the test begins.
	exporters int
	replicas  int32
	stateful  bool
}

func newHello(clusters []conforming) *hello {
	h := &hello{
		clusters: clusters, namespace: fmt.Sprintf("mcs-conformance-%d", rand.Uint32()), exporters: 1, replicas: 1,
	}
	for n := range h.services {
		h.services[n] = &corev1.Service{
			ObjectMeta: h.meta(),
			Spec: corev1.ServiceSpec{
				Selector: map[string]string{"app": "hello"},
				Ports: []corev1.ServicePort{
					{Name: "tcp", Port: 42, Protocol: corev1.ProtocolTCP},
					{Name: "udp", Port: 42, Protocol: corev1.ProtocolUDP},
				},
				SessionAffinity: corev1.ServiceAffinityClientIP,
				SessionAffinityConfig: &corev1.SessionAffinityConfig{
					ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(10))},
				},
				IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack),
			},
		}
		h.exports[n] = &mcsv1beta1.ServiceExport{ObjectMeta: h.meta()}
	}
	return h
}

func (h *hello) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: h.namespace, Name: "hello"}
}

func (h *hello) key() client.ObjectKey {
	return client.ObjectKey{Namespace: h.namespace, Name: "hello"}
}

// domain returns the name of the Service in all clusters.
func (h *hello) domain() string { return "hello." + h.namespace + ".svc.clusterset.local" }

// first is the cluster that exports.
func (h *hello) first() conforming { return h.clusters[0] }

// start makes what the test begins with. A second cluster exports once all have the import, so that
// the first one is the one that all have seen first, and at least a second later, so that it is the
// older one.
func (h *hello) start(t *testing.T) {
	t.Helper()
	for _, c := range h.clusters {
		of := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.namespace}}
		require.NoError(t, c.Create(t.Context(), of))
		t.Cleanup(func() {
			if err := c.Delete(context.Background(), of); err != nil {
				t.Error(err)
			}
		})
	}
	h.deploy(t, 0)
	if h.exporters > 0 {
		h.export(t, 0)
	}
	if h.exporters > 1 {
		for _, c := range h.clusters {
			h.awaitImport(t, c, nil)
		}
		time.Sleep(1100 * time.Millisecond)
		h.deploy(t, 1)
		h.export(t, 1)
	}
}

// deploy creates the Service and its pods.
func (h *hello) deploy(t *testing.T, cluster int) {
	t.Helper()
	labels := map[string]string{"app": "hello"}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{
				Name:            "hello",
				Image:           "lab.local/labapp:1",
				ImagePullPolicy: corev1.PullNever,
				Args:            []string{"web", ":42"},
				ReadinessProbe: &corev1.Probe{
					ProbeHandler: corev1.ProbeHandler{
						HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(42)},
					},
					PeriodSeconds: 1,
				},
			}},
		},
	}
	var workload client.Object = &appsv1.Deployment{ObjectMeta: h.meta(), Spec: appsv1.DeploymentSpec{
		Replicas: &h.replicas, Selector: selector, Template: template,
	}}
	if h.stateful {
		workload = &appsv1.StatefulSet{ObjectMeta: h.meta(), Spec: appsv1.StatefulSetSpec{
			Replicas: &h.replicas, Selector: selector, Template: template, ServiceName: "hello",
		}}
	}
	require.NoError(t, h.clusters[cluster].Create(t.Context(), workload))
	require.NoError(t, h.clusters[cluster].Create(t.Context(), h.services[cluster]))
}

func (h *hello) export(t *testing.T, cluster int) {
	t.Helper()
	require.NoError(t, h.clusters[cluster].Create(t.Context(), h.exports[cluster]))
}

func (h *hello) unexport(t *testing.T, cluster int) {
	t.Helper()
	require.NoError(t, h.clusters[cluster].Delete(t.Context(), h.exports[cluster]))
}

// await tries until it works, as long as the suite does: eventually has more patience.
func await(t *testing.T, limit time.Duration, try func() error) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Since(start) > limit {
			t.Fatalf("not within %v: %v", limit, err)
		}
	}
}

// unchanged checks that something stays as it is.
func unchanged(t *testing.T, check func() error) {
	t.Helper()
	for start := time.Now(); time.Since(start) < unchangedFor; time.Sleep(100 * time.Millisecond) {
		require.NoError(t, check())
	}
}
