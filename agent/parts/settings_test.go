package parts

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh"
	"subctl/agent/role"
	"subctl/agent/roles"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
	"subctl/internal/proxy"
	"subctl/internal/wake"
)

// settings are a value for each field of Submariner.spec that differs from the value in the
// scenario, by JSON name.
var settings = map[string]any{
	"airGappedDeployment":         true,
	"broker":                      "another",
	"brokerK8sApiServer":          "10.99.1.2:6443",
	"brokerK8sApiServerToken":     "another",
	"brokerK8sCA":                 base64.StdEncoding.EncodeToString([]byte("another")),
	"brokerK8sHTTPSProxy":         "http://proxy.example:3128",
	"brokerK8sInsecure":           true,
	"brokerK8sNoProxy":            []any{"0.0.0.0/0", "*"},
	"brokerK8sRemoteNamespace":    "another",
	"brokerK8sSecret":             "another",
	"brokerK8sTLSServerName":      "another.example",
	"cableDriver":                 "ipsec",
	"cableDriverCustomConfig":     map[string]any{"configMapName": "another"},
	"cableDriverCustomConfigPath": "another",
	"cableDrivers":                []any{"ipsec"},
	"ceIPSecDebug":                true,
	"ceIPSecForceUDPEncaps":       true,
	"ceIPSecIKEPort":              int64(501),
	"ceIPSecNATTPort":             int64(4501),
	"ceIPSecPSK":                  "another",
	"ceIPSecPSKSecret":            "another",
	"ceIPSecPreferredServer":      true,
	"clusterCIDR":                 "10.115.0.0/16",
	"clusterID":                   "another",
	"clusterLabels":               map[string]any{"site": "another"},
	"clusterSets":                 []any{"another"},
	"clustersetIPCIDR":            "243.0.0.0/8",
	"clustersetIPEnabled":         true,
	"colorCodes":                  "another",
	"combinedCableDrivers":        []any{"vxlan", "ipsec"},
	"connectionHealthCheck":       map[string]any{"enabled": true, "intervalSeconds": int64(7)},
	"coreDNSCustomConfig":         map[string]any{"configMapName": "another"},
	"customDomains":               []any{"another"},
	"debug":                       true,
	"encryption":                  "required",
	"gatewayNodes":                []any{"gw"},
	"gateways":                    int64(2),
	"globalCIDR":                  "242.1.0.0/16",
	"haltOnCertificateError":      false,
	"imageOverrides":              map[string]any{cluster.GatewayName: "another"},
	"loadBalancerEnabled":         true,
	"multiActiveGatewayEnabled":   true,
	"namespace":                   "another",
	"natEnabled":                  true,
	"nodeSelector":                map[string]any{"another": "another"},
	"policiesFrom":                "broker",
	"repository":                  "another",
	"serviceCIDR":                 "10.105.0.0/16",
	"serviceDiscovery":            map[string]any{"direct": true},
	"serviceDiscoveryEnabled":     true,
	"tolerations":                 []any{map[string]any{"key": "another", "operator": "Exists"}},
	"version":                     "another",
}

// elsewhere lists fields whose effect is that of other programs: the level of the log
// (TestAgentDebug of package cmd), names of imported Services, and the configuration of the
// cluster's DNS.
var elsewhere = []string{"debug", "serviceDiscovery", "coreDNSCustomConfig"}

// TestSettings sets each field of Submariner.spec to another value. Either something changes that
// the cluster holds: an object that join installs, the standing of a gateway, what it plans or
// reports, or its exchange with the broker. Or the API server refuses the value, with the field and
// a reason.
func TestSettings(t *testing.T) {
	server := kubetest.Start(t)
	server.InstallCRDs(t)
	api := server.Client(t)
	require.NoError(
		t,
		client.IgnoreAlreadyExists(
			api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.Namespace}})),
	)
	base := gatewayScenario(t)
	before := held(t, base, nil)
	fields := reflect.TypeFor[v1alpha1.SubmarinerSpec]()
	require.Len(t, settings, fields.NumField())
	for field := range fields.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		t.Run(name, func(t *testing.T) {
			value, listed := settings[name]
			require.True(t, listed, "a field without a value in this test")
			refusal := refused(t, api, base, name, value)
			changed := slices.Contains(elsewhere, name) ||
				before != held(t, base, func(spec map[string]any) { spec[name] = value })
			if refusal == nil {
				require.True(t, changed, "it has no effect, and is not refused")
				return
			}
			require.False(t, changed, "it is refused, but has an effect: %v", refusal)
			require.ErrorContains(t, refusal, "spec."+name+": ")
			require.NotContains(t, refusal.Error(), "failed rule", "a refusal has a reason")
		})
	}
}

// refused returns the error of the API server about a Submariner with a field.
func refused(t *testing.T, api client.Client, base []client.Object, name string, value any) error {
	t.Helper()
	u := specOf(t, base, func(spec map[string]any) { spec[name] = value })
	return api.Create(t.Context(), u, client.DryRunAll)
}

// specOf returns the Submariner among objects, with a change.
func specOf(t *testing.T, objs []client.Object, change func(spec map[string]any)) *unstructured.Unstructured {
	t.Helper()
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(submarinerOf(t, objs))
	require.NoError(t, err)
	change(m["spec"].(map[string]any))
	return &unstructured.Unstructured{Object: m}
}

func submarinerOf(t *testing.T, objs []client.Object) *v1alpha1.Submariner {
	t.Helper()
	for _, obj := range objs {
		if sub, ok := obj.(*v1alpha1.Submariner); ok {
			return sub
		}
	}
	t.Fatal("no Submariner")
	return nil
}

// held returns, as text, everything that follows from a Submariner with a change, except the
// Submariner itself.
func held(t *testing.T, base []client.Object, change func(spec map[string]any)) string {
	t.Helper()
	sub := submarinerOf(t, base)
	if change != nil {
		u := specOf(t, base, change)
		sub = &v1alpha1.Submariner{}
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, sub))
	}
	objs := []client.Object{sub}
	for _, obj := range base {
		if _, is := obj.(*v1alpha1.Submariner); !is {
			objs = append(objs, obj.DeepCopyObject().(client.Object))
		}
	}
	var out strings.Builder
	print := func(value any) {
		b, err := json.Marshal(value)
		require.NoError(t, err)
		out.Write(append(b, '\n'))
	}
	rendered, err := cluster.Render(sub)
	require.NoError(t, err)
	for _, obj := range rendered {
		if _, is := obj.(*v1alpha1.Submariner); !is {
			print(obj)
		}
	}
	snapshot, err := mesh.FromReports("gw", objs...)
	require.NoError(t, err)
	voter := &elector{
		node:     "gw",
		log:      slog.New(slog.DiscardHandler),
		siblings: &siblings{node: "gw", wake: wake.NewSignal()},
	}
	voter.role.Store(following)
	standing := snapshot
	require.NoError(t, voter.Observe(&standing))
	fmt.Fprintf(&out, "standing: %+v\n", standing.Standing)
	snapshot.Standing.Speaker = true
	for _, agentRole := range roles.OfNodes() {
		plan, err := agentRole.Plan(snapshot)
		fmt.Fprintf(&out, "%s: %v\n%v %+v\n", agentRole.Name, err, plan.State, plan.Probes)
		report := agentRole.Report(snapshot, plan, role.Outcome{})
		for _, list := range [][]role.Object{report.Apply, report.Delete, report.Update, report.Status} {
			for _, obj := range list {
				if _, is := obj.(*v1alpha1.Submariner); !is {
					print(obj)
				}
			}
		}
	}
	asked := sub.DeepCopy()
	if asked.Spec.Gateways == nil {
		asked.Spec.Gateways = new(int32(1))
	}
	// It has failed.
	plan, err := roles.GatewayNodes().Plan(role.NewSnapshot("gw", []client.Object{asked, cluster.GatewayNode("gw")}...))
	require.NoError(t, err)
	print(plan.Decisions)
	exchanger := &exchanger{local: &rest.Config{}, proxy: proxy.Settings{URL: "http://other.example:3128"}}
	fmt.Fprintf(&out, "exchange: %+v\n", *exchanger.targetOf(snapshot))
	return out.String()
}

// gatewayScenario returns the objects of scenario two-clusters.
func gatewayScenario(t *testing.T) []client.Object {
	t.Helper()
	archive, err := txtar.ParseFile("../../testdata/scenarios/two-clusters.txtar")
	require.NoError(t, err)
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	var out []client.Object
	for _, f := range archive.Files {
		if strings.HasPrefix(f.Name, "node ") {
			continue
		}
		for document := range strings.SplitSeq(string(f.Data), "\n---\n") {
			obj, _, err := decoder.Decode([]byte(document), nil, nil)
			require.NoError(t, err)
			out = append(out, obj.(client.Object))
		}
	}
	return out
}
