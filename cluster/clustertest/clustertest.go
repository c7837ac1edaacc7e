// Package clustertest gives tests the objects of a cluster that has joined, and fake API
// servers that hold them. It is not for production code.
package clustertest

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/internal/kube"
)

// Client returns a client of a fake API server that holds objs.
func Client(t *testing.T, objs ...client.Object) client.WithWatch {
	t.Helper()
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objs...).Build()
}

// Submariner returns how cluster "west" has joined.
func Submariner() *v1alpha1.Submariner {
	return &v1alpha1.Submariner{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.PublicKeyAnnotation: "cHVibGlj"}},
		Spec: v1alpha1.SubmarinerSpec{
			ClusterID:                "west",
			ClusterCIDR:              "10.111.0.0/16",
			ServiceCIDR:              "10.101.0.0/16",
			CableDriver:              "vxlan",
			BrokerK8sApiServer:       "hub.example.org:6443",
			BrokerK8sRemoteNamespace: "submariner-k8s-broker",
			Version:                  "v0.1.0",
		},
	}
}

// Render returns what a cluster joined as sub holds.
func Render(t testing.TB, sub *v1alpha1.Submariner) []client.Object {
	t.Helper()
	objs, err := cluster.Render(sub)
	require.NoError(t, err)
	return objs
}

// Text returns objects as YAML documents; of CustomResourceDefinitions only the names.
func Text(t *testing.T, objs []client.Object) string {
	t.Helper()
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	var out bytes.Buffer
	for _, obj := range objs {
		u, err := kube.Unstructured(scheme, obj)
		require.NoError(t, err)
		if _, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
			// see api/crds
			u.Object = map[string]any{"kind": u.GetKind(), "metadata": map[string]any{"name": u.GetName()}}
		}
		b, err := yaml.Marshal(u.Object)
		require.NoError(t, err)
		fmt.Fprintf(&out, "---\n%s", b)
	}
	return out.String()
}

// In returns the metadata of an object in the namespace of the agents.
func In(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name}
}

// Node returns a Linux node that is Ready, with labels whose value is "true".
func Node(name, ip string, labels ...string) corev1.Node {
	n := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux"}},
	}
	for _, l := range labels {
		n.Labels[l] = "true"
	}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

// Gateway returns the report of the gateway agent on node n1.
func Gateway(
	status submarinerv1.HAStatus,
	failure string,
	connections ...submarinerv1.Connection,
) *submarinerv1.Gateway {
	g := &submarinerv1.Gateway{ObjectMeta: In("n1"), Status: submarinerv1.GatewayStatus{
		HAStatus: status, StatusFailure: failure, Connections: connections,
	}}
	g.SetReportedAt(time.Now())
	return g
}
