package join_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/internal/kubetest"
)

// brokerSettings are a value for each field of Broker.spec that differs from the value of the test's
// broker, by JSON name.
var brokerSettings = map[string]any{
	"cableDriver":                 "ipsec",
	"clustersetIPCIDRRange":       "243.0.0.0/8",
	"clustersetIPEnabled":         true,
	"components":                  []any{"connectivity", "service-discovery"},
	"defaultCustomDomains":        []any{"example.com"},
	"defaultGlobalnetClusterSize": int64(4096),
	"globalnetCIDRRange":          "10.96.0.0/11", // overlaps the cluster's networks
	"globalnetEnabled":            false,
	"policiesFrom":                "broker",
}

// TestBrokerSettings sets each field of Broker.spec to another value. Either that changes what a join
// would do, or the API server refuses the value, with the field and a reason.
func TestBrokerSettings(t *testing.T) {
	server := kubetest.Start(t)
	server.InstallCRDs(t)
	api := server.Client(t)
	require.NoError(t, api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "submariner-k8s-broker"}}))
	base := &v1alpha1.Broker{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Broker"},
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.BrokerName, Namespace: "submariner-k8s-broker"},
		Spec:       v1alpha1.BrokerSpec{Components: []string{"connectivity"}, GlobalnetEnabled: true, GlobalnetCIDRRange: "242.0.0.0/8", DefaultGlobalnetClusterSize: 65536},
	}
	joining := func(b *v1alpha1.Broker) string {
		s := normal()
		s.b.Broker = b
		p, err := s.plan()
		if err != nil {
			return err.Error()
		}
		spec, err := json.Marshal(p.Submariner.Spec)
		require.NoError(t, err)
		return fmt.Sprintf("%s %v", spec, p.Warnings)
	}
	before := joining(base)
	fields := reflect.TypeFor[v1alpha1.BrokerSpec]()
	require.Len(t, brokerSettings, fields.NumField())
	for field := range fields.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		t.Run(name, func(t *testing.T) {
			value, listed := brokerSettings[name]
			require.True(t, listed, "a field without a value in this test")
			m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(base.DeepCopy())
			require.NoError(t, err)
			m["spec"].(map[string]any)[name] = value
			changed := &v1alpha1.Broker{}
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(m, changed))
			refusal := api.Create(t.Context(), &unstructured.Unstructured{Object: m}, client.DryRunAll)
			if refusal == nil {
				require.NotEqual(t, before, joining(changed), "it has no effect, and is not refused")
				return
			}
			require.ErrorContains(t, refusal, "spec."+name+": ")
			require.NotContains(t, refusal.Error(), "failed rule", "a refusal has a reason")
		})
	}
}
