package cluster_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/crds"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
)

// A combined cable that nobody can make does not get into a Submariner.
func TestSubmarinerSchema(t *testing.T) {
	server := kubetest.Shared(t)
	server.InstallCRDs(t)
	c := server.Client(t)
	require.NoError(
		t,
		client.IgnoreAlreadyExists(
			c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.Namespace}})),
	)
	for _, test := range []struct {
		combined []string
		valid    bool
	}{
		{nil, true},
		{[]string{}, true},
		{[]string{"vxlan", "ipsec"}, true},
		{[]string{"Libreswan", " vxlan"}, true},
		{[]string{"vxlan"}, false},
		{[]string{"vxlan+ipsec"}, false},
		{[]string{"vxlan", "vxlan"}, false},
		{[]string{"wireguard", "ipsec"}, false},
		{[]string{"vxlan", "gre"}, false},
		{[]string{"vxlan", "wireguard", "ipsec"}, false},
	} {
		sub := &v1alpha1.Submariner{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SubmarinerName, Namespace: cluster.Namespace},
			Spec:       v1alpha1.SubmarinerSpec{ClusterID: "west", CombinedCableDrivers: test.combined},
		}
		err := c.Create(t.Context(), sub, client.DryRunAll)
		if test.valid {
			require.NoError(t, err, "%q", test.combined)
		} else {
			require.ErrorContains(t, err, "spec.combinedCableDrivers", "%q", test.combined)
		}
	}
}

// Numbers of the health check that the agents cannot decode, or that overflow as a time, do not get
// into a Submariner. Those that join accepts do.
func TestHealthCheckSchema(t *testing.T) {
	server := kubetest.Shared(t)
	server.InstallCRDs(t)
	c := server.Client(t)
	for _, test := range []struct {
		interval, lost int64
		refused        string
	}{
		{v1alpha1.HealthCheckIntervalLimit, v1alpha1.PacketLossCountLimit, ""},
		{0, 0, ""},
		{v1alpha1.HealthCheckIntervalLimit + 1, 1, "intervalSeconds"},
		{-1, 1, "intervalSeconds"},
		{1, v1alpha1.PacketLossCountLimit + 1, "maxPacketLossCount"},
		{1, -1, "maxPacketLossCount"},
	} {
		sub := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Submariner",
			"metadata": map[string]any{"name": v1alpha1.SubmarinerName, "namespace": server.Namespace(t, "submariner")},
			"spec": map[string]any{
				"clusterID": "west",
				"connectionHealthCheck": map[string]any{
					"intervalSeconds":    test.interval,
					"maxPacketLossCount": test.lost,
				},
			},
		}}
		err := c.Create(t.Context(), sub, client.DryRunAll)
		if test.refused == "" {
			require.NotContains(t, fmt.Sprint(err), "connectionHealthCheck", "%d %d", test.interval, test.lost)
		} else {
			require.ErrorContains(t, err, "spec.connectionHealthCheck."+test.refused)
		}
	}
}

// The limits and defaults that "kubectl explain" prints are the ones in force.
func TestHealthCheckIsDescribed(t *testing.T) {
	all, err := crds.All()
	require.NoError(t, err)
	at := slices.IndexFunc(all,
		func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd.Spec.Names.Kind == "Submariner" })
	fields := all[at].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["connectionHealthCheck"].Properties
	for field, test := range map[string]struct{ limit, otherwise int }{
		"intervalSeconds":    {v1alpha1.HealthCheckIntervalLimit, v1alpha1.DefaultHealthCheckInterval},
		"maxPacketLossCount": {v1alpha1.PacketLossCountLimit, v1alpha1.DefaultMaxPacketLossCount},
	} {
		require.EqualValues(t, test.limit, *fields[field].Maximum)
		text := strings.Join(strings.Fields(fields[field].Description), " ")
		require.Contains(t, text, fmt.Sprintf("at most %d; 0 means %d.", test.limit, test.otherwise))
	}
	require.Equal(t, v1alpha1.DefaultHealthCheckInterval*time.Second,
		v1alpha1.SubmarinerSpec{}.HealthCheck().Interval())
}

// WithoutEffect clears what the API server refuses (see TestSettings of package parts).
func TestWithoutEffectIsAccepted(t *testing.T) {
	server := kubetest.Shared(t)
	server.InstallCRDs(t)
	c := server.Client(t)
	sub := &v1alpha1.Submariner{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SubmarinerName, Namespace: server.Namespace(t, "submariner")},
	}
	sub.Spec = v1alpha1.SubmarinerSpec{
		Broker: "x", BrokerK8sApiServerToken: "x", CeIPSecPSK: "x", CeIPSecIKEPort: 500, ClustersetIPCIDR: "x",
		AirGappedDeployment: true, ClustersetIPEnabled: true, LoadBalancerEnabled: true,
		CustomDomains: []string{"x"}, NodeSelector: map[string]string{"x": "y"},
	}
	err := c.Create(t.Context(), sub.DeepCopy(), client.DryRunAll)
	for field := range reflect.TypeFor[v1alpha1.SubmarinerSpec]().Fields() {
		if !reflect.ValueOf(sub.Spec).FieldByIndex(field.Index).IsZero() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			require.ErrorContains(t, err, "spec."+name)
		}
	}
	sub.Spec = sub.Spec.WithoutEffect()
	require.NoError(t, c.Create(t.Context(), sub, client.DryRunAll))
}

// A path at which the ConfigMap of cable drivers is mounted hides no file of the gateways' pods.
func TestCableDriverCustomConfigPath(t *testing.T) {
	server := kubetest.Shared(t)
	server.InstallCRDs(t)
	c := server.Client(t)
	ns := server.Namespace(t, "submariner")
	create := func(path string) error {
		sub := &v1alpha1.Submariner{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SubmarinerName, Namespace: ns}}
		sub.Spec.CableDriverCustomConfigPath = path
		return c.Create(t.Context(), sub, client.DryRunAll)
	}
	for _, path := range []string{"", "/etc/submariner/cable-driver-config", "/config", "/var/lib/submariner/a.b"} {
		require.NoError(t, create(path), path)
	}
	for _, path := range []string{
		"/", "etc/x", "/etc", "/etc/../usr", "/etc//x", "/etc/x/", "/var/run/secrets/submariner.io/psk", "/tmp",
		"/dev/net", "/usr/lib", "/a b", "/run",
	} {
		require.ErrorContains(t, create(path), "it must be an absolute path in the gateways' pods", path)
	}
}

// The speaker writes the status of a Submariner without its spec; natEnabled is present even where
// only another field was written.
func TestSubmarinerStatus(t *testing.T) {
	server := kubetest.Shared(t)
	server.InstallCRDs(t)
	c := server.Client(t)
	sub := &v1alpha1.Submariner{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SubmarinerName, Namespace: server.Namespace(t, "submariner")},
		Spec:       v1alpha1.SubmarinerSpec{ClusterID: "west", ClusterCIDR: "10.112.0.0/16"},
	}
	require.NoError(t, c.Create(t.Context(), sub))
	natEnabled := func() (value, found bool) {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Submariner"))
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(sub), u))
		value, found, err := unstructured.NestedBool(u.Object, "status", "natEnabled")
		require.NoError(t, err)
		return value, found
	}
	require.NoError(
		t,
		c.Status().Patch(t.Context(), sub.DeepCopy(),
			client.RawPatch(types.MergePatchType, []byte(`{"status":{"networkPlugin":"flannel"}}`))),
	)
	value, found := natEnabled()
	require.True(t, found)
	require.False(t, value)
	status := v1alpha1.SubmarinerStatus{ClusterID: "west", ClusterCIDR: "10.112.0.0/16", NatEnabled: true}
	require.NoError(
		t,
		kube.ApplyStatus(
			t.Context(),
			c,
			"subctl-gateway",
			&v1alpha1.Submariner{
				ObjectMeta: metav1.ObjectMeta{Name: sub.Name, Namespace: sub.Namespace, UID: sub.UID},
				Status:     status,
			},
		),
	)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(sub), sub))
	status.NetworkPlugin = "flannel"
	require.Equal(t, status, sub.Status)
	require.Equal(t, "10.112.0.0/16", sub.Spec.ClusterCIDR)
}

// What would cost traffic, or have no effect, does not get into a Submariner.
func TestSubmarinerLabelsAndID(t *testing.T) {
	server := kubetest.Shared(t)
	server.InstallCRDs(t)
	c := server.Client(t)
	sub := &v1alpha1.Submariner{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SubmarinerName, Namespace: server.Namespace(t, "submariner")},
		Spec: v1alpha1.SubmarinerSpec{
			ClusterID:     "west",
			ClusterLabels: map[string]string{"site": "cloud", "example.com/Tier": "Gold_1", "empty": ""},
		},
	}
	require.NoError(t, c.Create(t.Context(), sub))
	for _, test := range []struct{ spec, want string }{
		{`{"clusterLabels":{"submariner-io/clusterID":"east"}}`, "submariner-io/ or submariner.io/ are reserved"},
		{`{"clusterLabels":{"submariner.io/clusterset":"blue"}}`, "submariner-io/ or submariner.io/ are reserved"},
		{`{"clusterID":"east"}`, "cannot be changed: run subctl uninstall"},
		{`{"clusterLabels":{"site":null,"zone":"eu"}}`, ""},
	} {
		err := c.Patch(t.Context(), sub.DeepCopy(),
			client.RawPatch(types.MergePatchType, []byte(`{"spec":`+test.spec+`}`)), client.DryRunAll)
		if test.want == "" {
			require.NoError(t, err, test.spec)
		} else {
			require.ErrorContains(t, err, test.want, test.spec)
		}
	}
}
