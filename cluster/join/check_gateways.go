package join

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster"
	"subctl/internal/words"
)

// checkGateways refuses a cluster without a gateway, and warns of gateways that are not
// Ready.
func checkGateways(r request) ([]string, error) {
	_, notes, err := r.gateways()
	return notes, err
}

// gateways returns the nodes to label as gateways, and notes for the user. It chooses the
// nodes that the user named. If none are named and no node is labelled, it chooses the
// first worker by name that is Ready.
func (r request) gateways() (choice, notes []string, err error) {
	nodes, named := slices.Clone(r.member.Nodes), r.GatewayNodes
	slices.SortFunc(nodes, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	var there []string
	for _, n := range nodes {
		if cluster.IsGateway(n) {
			there = append(there, n.Name)
			if !cluster.IsReady(n) {
				notes = append(notes, fmt.Sprintf("gateway node %s is not Ready", n.Name))
			}
		}
	}
	if len(named) > 0 {
		return namedGateways(nodes, named)
	}
	if len(there) > 0 {
		return nil, notes, nil
	}
	if !r.LabelGateway {
		return nil, nil, fmt.Errorf("no node is a gateway: label one (kubectl label node NAME %s=true), specify one with --gateway-nodes, "+
			"or do not turn off --label-gateway", submarinerv1.GatewayNodeLabel)
	}
	candidates := workers(nodes)
	if len(candidates) == 0 {
		return nil, nil, errors.New("no node can become the gateway: none is Ready and schedulable; specify one with --gateway-nodes")
	}
	if len(candidates) > 1 {
		notes = append(notes, fmt.Sprintf("node %s becomes the gateway, the first of %d suitable nodes: specify other nodes with --gateway-nodes",
			candidates[0], len(candidates)))
	}
	return candidates[:1], notes, nil
}

func namedGateways(nodes []corev1.Node, named []string) (choice, notes []string, err error) {
	var errs []error
	for _, name := range slices.Compact(slices.Sorted(slices.Values(named))) {
		i := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == name })
		switch {
		case i < 0:
			var all []string
			for _, n := range nodes {
				all = append(all, n.Name)
			}
			errs = append(errs, fmt.Errorf("--gateway-nodes: there is no node %q: the cluster has %s", name, words.List(all)))
		case !cluster.IsGateway(nodes[i]):
			choice = append(choice, name)
		}
		if i >= 0 && !cluster.IsReady(nodes[i]) {
			notes = append(notes, fmt.Sprintf("gateway node %s is not Ready", name))
		}
	}
	return choice, notes, errors.Join(errs...)
}

// workers returns the names of the nodes that can become gateways. Nodes of the control
// plane are included only if there are no other nodes.
func workers(nodes []corev1.Node) []string {
	var plain, control []string
	for _, n := range nodes {
		os := n.Labels[corev1.LabelOSStable]
		if !cluster.IsReady(n) || n.Spec.Unschedulable || (os != "" && os != "linux") {
			continue
		}
		_, isControl := n.Labels["node-role.kubernetes.io/control-plane"]
		_, isMaster := n.Labels["node-role.kubernetes.io/master"] // before Kubernetes 1.25
		if isControl || isMaster {
			control = append(control, n.Name)
		} else {
			plain = append(plain, n.Name)
		}
	}
	if len(plain) > 0 {
		return plain
	}
	return control
}
