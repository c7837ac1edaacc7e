package cluster_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cable/keys"
	"subctl/cluster"
	"subctl/internal/kube"
)

func west() *v1alpha1.Submariner {
	return &v1alpha1.Submariner{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.PublicKeyAnnotation: "cHVibGlj"}},
		Spec: v1alpha1.SubmarinerSpec{
			ClusterID: "west", ClusterCIDR: "10.111.0.0/16", ServiceCIDR: "10.101.0.0/16", CableDriver: "vxlan",
			BrokerK8sApiServer: "hub.example.org:6443", BrokerK8sRemoteNamespace: "submariner-k8s-broker", Version: "v0.1.0",
		},
	}
}

func render(t *testing.T, sub *v1alpha1.Submariner) []client.Object {
	t.Helper()
	objs, err := cluster.Render(sub)
	require.NoError(t, err)
	return objs
}

func text(t *testing.T, objs []client.Object) string {
	t.Helper()
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	var out bytes.Buffer
	for _, obj := range objs {
		u, err := kube.Unstructured(scheme, obj)
		require.NoError(t, err)
		if _, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
			u.Object = map[string]any{"kind": u.GetKind(), "metadata": map[string]any{"name": u.GetName()}} // see api/crds
		}
		b, err := yaml.Marshal(u.Object)
		require.NoError(t, err)
		fmt.Fprintf(&out, "---\n%s", b)
	}
	return out.String()
}

func TestRender(t *testing.T) {
	sub := west()
	golden.Assert(t, text(t, render(t, sub)), "render.yaml")
	require.Equal(t, west(), sub, "Render must not change its input")

	sub.Spec.ImageOverrides = cluster.ImageOverrides("registry.example.org/subctl:test")
	sub.Spec.Tolerations = []corev1.Toleration{{Key: "gateway", Operator: corev1.TolerationOpExists}}
	sub.Spec.CeIPSecNATTPort, sub.Spec.Debug, sub.Spec.NatEnabled = 4501, true, true
	sub.Spec.ConnectionHealthCheck = &v1alpha1.HealthCheckSpec{IntervalSeconds: 3}
	golden.Assert(t, text(t, render(t, sub)), "render_options.yaml")
}

func TestEverythingRenderedIsOurs(t *testing.T) {
	for _, obj := range render(t, west()) {
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
		{v1alpha1.SubmarinerSpec{Repository: "quay.io/x", ImageOverrides: map[string]string{cluster.GatewayName: "a/b:c"}}, "a/b:c"},
		{v1alpha1.SubmarinerSpec{ImageOverrides: map[string]string{cluster.RouteAgentName: "a/b:c"}}, "localhost/subctl:devel"},
	} {
		require.Equal(t, test.want, cluster.Image(&v1alpha1.Submariner{Spec: test.spec}, cluster.GatewayName))
	}
}

func TestSecretsHoldWhatTheGatewayReads(t *testing.T) {
	key, err := keys.Generate()
	require.NoError(t, err)
	found := map[string][]string{}
	for _, obj := range cluster.Secrets(&broker.Credentials{Token: broker.Secret("t"), CA: []byte("c")}, broker.Secret("p"), cluster.ClusterKey{Private: key, Seed: make(broker.Secret, keys.Size)}) {
		s := obj.(*corev1.Secret)
		for name := range s.Data {
			found[s.Name] = append(found[s.Name], name)
		}
	}
	require.ElementsMatch(t, []string{"token", "ca.crt"}, found[cluster.BrokerSecret])
	require.ElementsMatch(t, []string{"psk"}, found[cluster.PSKSecret])
	require.ElementsMatch(t, []string{"private", "public", "seed"}, found[cluster.ClusterKeySecret])
}

func TestSuggestID(t *testing.T) {
	for name, want := range map[string]string{
		"west": "west", "Prod_1": "prod-1", "arn:aws:eks:eu/x": "arn-aws-eks-eu-x", "-a-": "0a0", "kind-c1.local": "kind-c1-local", "": "",
	} {
		require.Equal(t, want, cluster.SuggestID(name))
	}
}
