package cluster_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/trust"
	"subctl/cable/keys"
	"subctl/cluster"
	"subctl/cluster/clustertest"
)

func TestRender(t *testing.T) {
	sub := clustertest.Submariner()
	golden.Assert(t, clustertest.Text(t, clustertest.Render(t, sub)), "render.yaml")
	require.Equal(t, clustertest.Submariner(), sub, "Render must not change its input")

	sub.Spec.ImageOverrides = cluster.ImageOverrides("registry.example.org/subctl:test")
	sub.Spec.Tolerations = []corev1.Toleration{{Key: "gateway", Operator: corev1.TolerationOpExists}}
	sub.Spec.CeIPSecNATTPort = 4501
	sub.Spec.Debug = true
	sub.Spec.NatEnabled = true
	sub.Spec.ConnectionHealthCheck = &v1alpha1.HealthCheckSpec{IntervalSeconds: 3}
	sub.Spec.Gateways = new(int32(2))
	golden.Assert(t, clustertest.Text(t, clustertest.Render(t, sub)), "render_options.yaml")
}

// Whatever the Secret with the credentials for the broker is called, it is mounted where the
// gateway agent reads it.
func TestRenderMountsTheBrokersSecret(t *testing.T) {
	sub := clustertest.Submariner()
	sub.Spec.BrokerK8sSecret = "our-broker"
	got := clustertest.Text(t, clustertest.Render(t, sub))
	require.Contains(t, got,
		"- mountPath: /run/secrets/submariner.io/submariner-broker-secret\n          name: our-broker\n          readOnly: true\n")
	require.Contains(t, got, "secretName: our-broker\n")
}

func TestEverythingRenderedIsOurs(t *testing.T) {
	for _, obj := range clustertest.Render(t, clustertest.Submariner()) {
		require.Equal(t, cluster.ManagedBy, obj.GetLabels()[cluster.ManagedByLabel], "%T %s", obj, obj.GetName())
	}
}

func TestImage(t *testing.T) {
	for _, test := range []struct {
		spec v1alpha1.SubmarinerSpec
		want string
	}{
		{v1alpha1.SubmarinerSpec{}, "localhost/subctl:devel"},
		{v1alpha1.SubmarinerSpec{Version: "v1"}, "localhost/subctl:v1"},
		{v1alpha1.SubmarinerSpec{Repository: "quay.io/x/", Version: "v1"}, "quay.io/x/subctl:v1"},
		{
			v1alpha1.SubmarinerSpec{
				Repository:     "quay.io/x",
				ImageOverrides: map[string]string{cluster.GatewayName: "a/b:c"},
			},
			"a/b:c",
		},
		{
			v1alpha1.SubmarinerSpec{ImageOverrides: map[string]string{cluster.RouteAgentName: "a/b:c"}},
			"localhost/subctl:devel",
		},
	} {
		require.Equal(t, test.want, cluster.Image(&v1alpha1.Submariner{Spec: test.spec}, cluster.GatewayName))
	}
}

func TestSecretsHoldWhatTheGatewayReads(t *testing.T) {
	key, err := keys.Generate()
	require.NoError(t, err)
	signing, err := trust.NewKey()
	require.NoError(t, err)
	found := map[string][]string{}
	for _, obj := range cluster.Secrets(&broker.Credentials{Token: broker.Secret("t"), CA: []byte("c")},
		broker.Secret("p"), cluster.ClusterKey{Private: key, Seed: make(broker.Secret, keys.Size)},
		cluster.Trust{Key: signing, Administrator: signing.Public(), Grant: "a.b.c"}) {
		s := obj.(*corev1.Secret)
		for name := range s.Data {
			found[s.Name] = append(found[s.Name], name)
		}
	}
	require.ElementsMatch(t, []string{"token", "ca.crt"}, found[cluster.BrokerSecret])
	require.ElementsMatch(t, []string{"psk"}, found[cluster.PSKSecret])
	require.ElementsMatch(t, []string{"private", "public", "seed"}, found[cluster.ClusterKeySecret])
	require.ElementsMatch(t, []string{"signing-key", "administrator", "grant"}, found[cluster.TrustSecret])
}
