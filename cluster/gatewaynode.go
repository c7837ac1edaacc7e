package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
)

// gateways says which nodes to label as gateways, and what to tell the user.
// Nodes that are named are labelled; nodes that are labelled stay; where neither
// is the case, the first worker by name that is ready becomes the gateway.
func gateways(nodes []corev1.Node, named []string, label bool) (choice []string, notes []string, err error) {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	var there []string
	for _, n := range nodes {
		if isGateway(n) {
			there = append(there, n.Name)
			if !isReady(n) {
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
	if !label {
		return nil, nil, fmt.Errorf("no node is a gateway: label one (kubectl label node NAME %s=true), name one with --gateway-nodes, "+
			"or leave --label-gateway on", submarinerv1.GatewayNodeLabel)
	}
	candidates := workers(nodes)
	if len(candidates) == 0 {
		return nil, nil, errors.New("no node can become the gateway: none is Ready and schedulable; name one with --gateway-nodes")
	}
	if len(candidates) > 1 {
		notes = append(notes, fmt.Sprintf("node %s becomes the gateway, the first of %d that could: choose others with --gateway-nodes",
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
			errs = append(errs, fmt.Errorf("--gateway-nodes: there is no node %q: the cluster has %s", name, shortList(all)))
		case !isGateway(nodes[i]):
			choice = append(choice, name)
		}
		if i >= 0 && !isReady(nodes[i]) {
			notes = append(notes, fmt.Sprintf("gateway node %s is not Ready", name))
		}
	}
	return choice, notes, errors.Join(errs...)
}

// workers returns the names of nodes that may become gateways: those of the
// control plane only if there are no others.
func workers(nodes []corev1.Node) []string {
	var plain, control []string
	for _, n := range nodes {
		os := n.Labels[corev1.LabelOSStable]
		if !isReady(n) || n.Spec.Unschedulable || (os != "" && os != "linux") {
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

func isGateway(n corev1.Node) bool { return n.Labels[submarinerv1.GatewayNodeLabel] == "true" }

func isReady(n corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// shortList joins names, leaving most out of a long list.
func shortList(names []string) string {
	const most = 8
	if n := len(names) - most; n > 0 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names, ", ")
}
