package join

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"subctl/cluster"
	"subctl/internal/words"
)

// checkNodes warns of the nodes for whose agents join does not wait: agents never run on them, or
// not now.
func checkNodes(r request) ([]string, error) {
	var unsuited, broken []string
	for _, n := range sortedNodes(r.member.Nodes) {
		why := cluster.NoPods(n)
		switch {
		case why != "":
			unsuited = append(unsuited, fmt.Sprintf("%s (%s)", n.Name, why))
		case !cluster.IsReady(n) && cluster.IsGateway(n):
			broken = append(broken, n.Name+" (a gateway)")
		case !cluster.IsReady(n):
			broken = append(broken, n.Name)
		}
	}
	var texts []string
	if len(unsuited) > 0 {
		texts = append(texts, "no agent runs on "+words.List(unsuited)+": their pods reach no other cluster")
	}
	if len(broken) > 0 {
		texts = append(texts,
			"not Ready: "+words.List(broken)+": their agents start, or are replaced, when the nodes are Ready")
	}
	if len(texts) == 0 {
		return nil, nil
	}
	return []string{"not waiting for the agents of these nodes:\n  " + strings.Join(texts, "\n  ")}, nil
}

func sortedNodes(nodes []corev1.Node) []corev1.Node {
	return slices.SortedFunc(slices.Values(nodes), func(a, b corev1.Node) int {
		return strings.Compare(a.Name, b.Name)
	})
}

// brokenGateways returns the number of gateway nodes that are not Ready, those in made included.
func brokenGateways(nodes []corev1.Node, made []string) (n int) {
	for _, node := range nodes {
		gateway := cluster.IsGateway(node) || slices.Contains(made, node.Name)
		if gateway && cluster.NoPods(node) == "" && !cluster.IsReady(node) {
			n++
		}
	}
	return n
}
