package join_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster/clustertest"
)

func TestGatewayNodes(t *testing.T) {
	const control = "node-role.kubernetes.io/control-plane"
	for _, test := range []struct {
		name  string
		nodes []corev1.Node
		named []string
		want  []string
	}{
		{"workers first", []corev1.Node{clustertest.Node("a", "10.89.1.1", control), clustertest.Node("c", "10.89.1.3"), clustertest.Node("b", "10.89.1.2")}, nil, []string{"b"}},
		{"control plane alone", []corev1.Node{clustertest.Node("a", "10.89.1.1", control)}, nil, []string{"a"}},
		{"labelled already", []corev1.Node{clustertest.Node("a", "10.89.1.1"), clustertest.Node("b", "10.89.1.2", submarinerv1.GatewayNodeLabel)}, nil, nil},
		{"named", []corev1.Node{clustertest.Node("a", "10.89.1.1"), clustertest.Node("b", "10.89.1.2", submarinerv1.GatewayNodeLabel)}, []string{"b", "a"}, []string{"a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := normal()
			s.f.Nodes, s.GatewayNodes = test.nodes, test.named
			p, err := s.plan()
			require.NoError(t, err)
			require.Equal(t, test.want, p.Gateways)
		})
	}
}
