package broker_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gotest.tools/v3/golden"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"subctl/broker"
	"subctl/globalnet"
	"subctl/internal/kube"
)

// Everything a broker consists of, but for the CRDs, which are in api/crds.
func TestRender(t *testing.T) {
	info, err := globalnet.Parse(globalnet.DefaultRange, globalnet.DefaultClusterSize)
	require.NoError(t, err)
	objects, err := broker.Render(broker.Options{
		Namespace:      "submariner-k8s-broker",
		Sets:           []string{"prod"},
		Components:     []string{broker.Connectivity},
		CableDriver:    "vxlan",
		DefaultPolicy:  "ipsec",
		Globalnet:      info,
		PSKFingerprint: broker.Fingerprint(broker.Secret("a")),
	})
	require.NoError(t, err)
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	var got strings.Builder
	for _, obj := range objects {
		if _, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
			continue
		}
		u, err := kube.Unstructured(scheme, obj)
		require.NoError(t, err)
		b, err := yaml.Marshal(u.Object)
		require.NoError(t, err)
		got.WriteString("---\n" + string(b))
	}
	golden.Assert(t, got.String(), "broker.yaml")
}
