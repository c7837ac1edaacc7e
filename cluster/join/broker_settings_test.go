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

// brokerSettings are a value for each field of Broker.spec that differs from the value of the
// test's broker, by JSON name.
var brokerSettings = map[string]any{
	"cableDriver":                 "ipsec",
	"clustersetIPCIDRRange":       "243.0.0.0/8",
	"clustersetIPEnabled":         true,
	"components":                  []any{"connectivity", "service-discovery"},
	"serviceDiscoveryEnabled":     false,
	"defaultCustomDomains":        []any{"example.com"},
	"defaultGlobalnetClusterSize": int64(4096),
	"globalnetCIDRRange":          "10.96.0.0/11", // overlaps the cluster's networks
	"globalnetEnabled":            false,
	"policiesFrom":                "broker",
}

// TestBrokerSettings sets each field of Broker.spec to another value. Either that changes what a
// join would do, or the API server refuses the value, with the field and a reason.
func TestBrokerSettings(t *testing.T) {
	server := kubetest.Start(t)
	server.InstallCRDs(t)
	api := server.Client(t)
	require.NoError(t,
		api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "submariner-k8s-broker"}}))
	base := &v1alpha1.Broker{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Broker"},
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.BrokerName, Namespace: "submariner-k8s-broker"},
		Spec: v1alpha1.BrokerSpec{
			Components:                  []string{"connectivity"},
			GlobalnetEnabled:            true,
			GlobalnetCIDRRange:          "242.0.0.0/8",
			DefaultGlobalnetClusterSize: 65536,
		},
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

// A cluster follows the broker in whether it has service discovery. What the user specifies comes
// first, and then what the cluster has. A cluster that an earlier version of subctl has joined has
// chosen nothing.
func TestServiceDiscoveryOfTheBroker(t *testing.T) {
	const none, without, with = "", "false", "true"
	chosen := map[string]*bool{none: nil, without: new(false), with: new(true)}
	for _, test := range []struct {
		name, broker, flag, joined string
		old, reset                 bool
		want                       bool
	}{
		{name: "a broker of an earlier version", want: true},
		{name: "the broker leaves it out", broker: without},
		{name: "the broker has it", broker: with, want: true},
		{name: "the flag comes first", broker: without, flag: with, want: true},
		{name: "the flag comes first, too", broker: with, flag: without},
		{name: "a member keeps it", broker: without, joined: with, want: true},
		{name: "a member keeps that it has none", broker: with, joined: without},
		{name: "the flag changes a member", broker: with, joined: with, flag: without},
		{name: "a member of an earlier version follows the broker", broker: without, joined: without, old: true},
		{name: "a member of an earlier version gets it", joined: without, old: true, want: true},
		{name: "--reset follows the broker", broker: without, joined: with, reset: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := normal()
			s.b.Broker.Spec.ServiceDiscoveryEnabled = chosen[test.broker]
			if has := chosen[test.joined]; has != nil {
				s.f.Submariner = joined("west", "hub:6443")
				s.f.Submariner.Spec.ServiceDiscoveryEnabled = *has
				if !test.old {
					s.f.Submariner.Spec.ServiceDiscovery = &v1alpha1.ServiceDiscoverySpec{}
				}
			}
			if flag := chosen[test.flag]; flag != nil {
				s.ServiceDiscovery, s.Specified = *flag, append(s.Specified, "service-discovery")
			}
			s.Reset = test.reset
			p, err := s.plan()
			require.NoError(t, err)
			require.Equal(t, test.want, p.Submariner.Spec.ServiceDiscoveryEnabled)
			require.Equal(t, !test.want && test.broker == without && test.flag == none && (test.joined == none ||
				test.old || test.reset),
				p.LeftOut)
		})
	}
}

// A block in the cluster's DNS goes where the user asks for --dns=false, and where the cluster has
// joined.
func TestPlanFreesDNS(t *testing.T) {
	for _, test := range []struct {
		member, specified, free bool
	}{{false, true, false}, {true, false, false}, {true, true, true}} {
		s := normal()
		s.DNS = false
		if test.member {
			s.f.Submariner = joined("west", "hub:6443")
		}
		if test.specified {
			s.Specified = append(s.Specified, "dns")
		}
		p, err := s.plan()
		require.NoError(t, err)
		require.Equal(t, test.free, p.FreeDNS)
	}
}
