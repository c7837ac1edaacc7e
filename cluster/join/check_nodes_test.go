package join_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster/clustertest"
)

// Nodes without an agent are named in one warning, and none of them becomes a gateway, or counts as
// one.
func TestNodesWithoutAgents(t *testing.T) {
	node := func(name string, label ...string) corev1.Node { return clustertest.Node(name, "10.89.1.1", label...) }
	windows := node("win")
	virtual := node("vk", submarinerv1.GatewayNodeLabel)
	down := node("down", submarinerv1.GatewayNodeLabel)
	windows.Labels[corev1.LabelOSStable] = "windows"
	virtual.Labels["type"] = "virtual-kubelet"
	down.Status.Conditions[0].Status = corev1.ConditionUnknown

	s := normal()
	s.f.Nodes = []corev1.Node{windows, virtual, node("ok"), down}
	p, err := s.plan()
	require.NoError(t, err)
	var got []string
	for _, w := range p.Warnings {
		if strings.Contains(w, "down") || strings.Contains(w, "win") {
			got = append(got, w)
		}
	}
	require.Equal(t, []string{"not waiting for the agents of these nodes:\n" +
		"  no agent runs on vk (is virtual: type=virtual-kubelet), win (runs windows): their pods reach no other " +
		"cluster\n" +
		"  not Ready: down (a gateway): their agents start, or are replaced, when the nodes are Ready"}, got)
	require.Equal(t, 1, p.Platform.BrokenGateways, "the virtual one is none")

	s.f.Nodes = []corev1.Node{virtual, node("ok")}
	p, err = s.plan()
	require.NoError(t, err)
	require.Equal(t, []string{"ok"}, p.Gateways, "the labelled node cannot be a gateway")

	s.GatewayNodes = []string{"vk"}
	_, err = s.plan()
	require.ErrorContains(t, err,
		`--gateway-nodes: no agent runs on node "vk", which is virtual: type=virtual-kubelet: specify another one`)
}
