package join

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster"
	"subctl/internal/words"
)

// checkGateways refuses a cluster without a gateway, and warns of a single gateway where several
// are to be active. checkNodes warns of gateways that are not Ready.
func checkGateways(r request) ([]string, error) {
	choice, notes, err := r.gateways()
	if n := len(choice) + len(labelled(r.member.Nodes)); err == nil && r.MultiActiveGateway && n < 2 {
		notes = append(notes, fmt.Sprintf("%s works with one gateway node, but no other gateway takes over if it fails: %s",
			r.source("multi-active-gateway"), r.anotherGateway(choice)))
	}
	return notes, err
}

// anotherGateway returns how the cluster gets a second gateway node. choice are the nodes that join labels.
func (r request) anotherGateway(choice []string) string {
	label := fmt.Sprintf("label more nodes (kubectl label node NAME %s=true)", submarinerv1.GatewayNodeLabel)
	others := slices.DeleteFunc(slices.Clone(r.member.Nodes), func(n corev1.Node) bool {
		return cluster.IsGateway(n) || slices.Contains(choice, n.Name)
	})
	plain, control := suitable(others)
	i, _ := r.file.Invited() // checkInvitation returns the error
	switch {
	case i != nil && i.Gateways < 2:
		return "the join file allows one: ask the administrator of the broker for another file (subctl invite --gateways 2)"
	case len(others) == 0:
		return "the cluster has no other node: when it has, join again with --gateways 2"
	case len(plain)+len(control) == 0:
		return "none of the other nodes is Ready, schedulable, Linux and not virtual: when one is, join again with --gateways 2"
	case len(r.GatewayNodes) > 0:
		return "name more nodes with --gateway-nodes"
	case !r.LabelGateway:
		return label
	}
	return label + ", or specify --gateways 2 or more"
}

// gateways returns the nodes to label as gateways, and notes for the user. It chooses the
// nodes that the user named. If none are named, it chooses as many as are missing: see spread.
func (r request) gateways() (choice, notes []string, err error) {
	nodes := sortedNodes(r.member.Nodes)
	if len(r.GatewayNodes) > 0 {
		choice, err = namedGateways(nodes, r.GatewayNodes)
		return choice, nil, err
	}
	there := labelled(nodes)
	missing := max(r.Gateways, 1) - len(there)
	switch {
	case missing < 0 && r.Gateways > 0:
		return nil, append(notes, fmt.Sprintf("the cluster has %d gateway nodes, and join removes no label: to have %d, run kubectl label node NAME %s- for the others",
			len(there), r.Gateways, submarinerv1.GatewayNodeLabel)), nil
	case missing <= 0:
		return nil, notes, nil
	case !r.LabelGateway:
		return nil, nil, fmt.Errorf("no node is a gateway: label one (kubectl label node NAME %s=true), specify one with --gateway-nodes, "+
			"or do not turn off --label-gateway", submarinerv1.GatewayNodeLabel)
	}
	return r.chooseGateways(nodes, there, missing, notes)
}

// chooseGateways chooses the missing gateways, and adds to the notes.
func (r request) chooseGateways(nodes, there []corev1.Node, missing int, notes []string) (choice, more []string, err error) {
	plain, control := suitable(nodes)
	all := len(plain) + len(control)
	switch {
	case r.Gateways > len(nodes):
		return nil, nil, fmt.Errorf("--gateways %d: the cluster has %s: specify fewer", r.Gateways, words.Count(len(nodes), "node"))
	case r.Gateways == 0 && all == 0:
		return nil, nil, errors.New("no node can become the gateway: none is Ready and schedulable; specify one with --gateway-nodes")
	case missing > all:
		return nil, nil, fmt.Errorf("--gateways %d: the cluster has %s, and %d of the other nodes can become gateways: the rest is not Ready, not schedulable, not Linux, or virtual; "+
			"specify fewer, or name nodes with --gateway-nodes", r.Gateways, words.Count(len(there), "gateway node"), all)
	}
	var texts []string
	for _, n := range spread(there, plain, control, missing) {
		choice = append(choice, n.Name)
		text := n.Name
		if zone(n) != "" {
			text += " (zone " + zone(n) + ")"
		}
		texts = append(texts, text)
	}
	suited := len(plain)
	if suited == 0 {
		suited = len(control)
	}
	switch {
	case r.Gateways > 0:
		notes = append(notes, fmt.Sprintf("new gateway nodes: %s; to choose others, use --gateway-nodes instead of --gateways", strings.Join(texts, ", ")))
	case suited > 1:
		notes = append(notes, fmt.Sprintf("node %s becomes the gateway, the first of %d suitable nodes: specify other nodes with --gateway-nodes", choice[0], suited))
	}
	slices.Sort(choice)
	return choice, notes, nil
}

// spread chooses n nodes to label in addition to the gateways that are there: each time the first node by
// name of the zone with the fewest gateways. It takes nodes of the control plane after all others. There are n.
func spread(there, plain, control []corev1.Node, n int) (choice []corev1.Node) {
	gateways := map[string]int{} // by zone
	for _, node := range there {
		gateways[zone(node)]++
	}
	for range n {
		from := &plain
		if len(plain) == 0 {
			from = &control
		}
		next := slices.MinFunc(*from, func(a, b corev1.Node) int { // the first one of several
			return cmp.Compare(gateways[zone(a)], gateways[zone(b)])
		})
		*from = slices.DeleteFunc(*from, func(o corev1.Node) bool { return o.Name == next.Name })
		gateways[zone(next)]++
		choice = append(choice, next)
	}
	return choice
}

// labelled returns the nodes that are gateways: those with the label that can run our pods.
func labelled(nodes []corev1.Node) []corev1.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n corev1.Node) bool { return !cluster.IsGateway(n) || cluster.Unsuited(n) != "" })
}

// zone returns the zone of a node; empty if it has none. All nodes without a zone are in one.
func zone(n corev1.Node) string { return n.Labels[corev1.LabelTopologyZone] }

func namedGateways(nodes []corev1.Node, named []string) (choice []string, err error) {
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
		case cluster.Unsuited(nodes[i]) != "":
			errs = append(errs, fmt.Errorf("--gateway-nodes: no agent runs on node %q, which %s: specify another one", name, cluster.Unsuited(nodes[i])))
		case !cluster.IsGateway(nodes[i]):
			choice = append(choice, name)
		}
	}
	return choice, errors.Join(errs...)
}

// suitable returns the nodes that can become gateways: nodes of the control plane, and other nodes.
func suitable(nodes []corev1.Node) (plain, control []corev1.Node) {
	for _, n := range nodes {
		if !cluster.IsReady(n) || n.Spec.Unschedulable || cluster.Unsuited(n) != "" || cluster.IsGateway(n) {
			continue
		}
		_, isControl := n.Labels["node-role.kubernetes.io/control-plane"]
		_, isMaster := n.Labels["node-role.kubernetes.io/master"] // before Kubernetes 1.25
		if isControl || isMaster {
			control = append(control, n)
		} else {
			plain = append(plain, n)
		}
	}
	return plain, control
}
