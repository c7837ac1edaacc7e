package join

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster"
	"subctl/cluster/gatewaynodes"
	"subctl/internal/words"
)

// checkGateways refuses a cluster without a gateway, and warns of a single gateway where several
// are to be active. checkNodes warns of gateways that are not Ready.
func checkGateways(r request) ([]string, error) {
	choice, notes, err := r.gateways()
	if n := len(choice) + len(labelled(r.member.Nodes)); err == nil && r.MultiActiveGateway && n < 2 {
		notes = append(
			notes,
			fmt.Sprintf("%s works with one gateway node, but no other gateway takes over if it fails: %s",
				r.source("multi-active-gateway"), r.anotherGateway(choice)),
		)
	}
	return notes, err
}

// anotherGateway returns how the cluster gets a second gateway node. choice are the nodes that join
// labels.
func (r request) anotherGateway(choice []string) string {
	label := fmt.Sprintf("label more nodes (kubectl label node NAME %s=true)", submarinerv1.GatewayNodeLabel)
	others := slices.DeleteFunc(slices.Clone(r.member.Nodes), func(n corev1.Node) bool {
		return cluster.IsGateway(n) || slices.Contains(choice, n.Name)
	})
	suited := suitable(others)
	i, _ := r.file.Invited() // checkInvitation returns the error
	switch {
	case i != nil && i.Gateways < 2:
		return "the join file allows one: ask the administrator of the broker for another file (subctl invite --gateways 2)"
	case len(others) == 0:
		return "the cluster has no other node: when it has, join again with --gateways 2"
	case len(suited) == 0:
		return "none of the other nodes is Ready, schedulable, Linux and not virtual: when one is, join again with " +
			"--gateways 2"
	case len(r.GatewayNodes) > 0:
		return "name more nodes with --gateway-nodes"
	case !r.LabelGateway:
		return label
	}
	return label + ", or specify --gateways 2 or more"
}

// gateways returns the nodes to label as gateways, and notes for the user. It chooses the nodes
// that the user named. If none are named, it chooses as many as are missing: see
// gatewaynodes.Choose.
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
		return nil, append(
			notes,
			fmt.Sprintf(
				"the cluster has %d gateway nodes, and join removes no label: to have %d, run kubectl label node NAME %s- for the others",
				len(there), r.Gateways, submarinerv1.GatewayNodeLabel),
		), nil
	case missing <= 0:
		return nil, notes, nil
	case !r.LabelGateway:
		return nil, nil, fmt.Errorf(
			"no node is a gateway: label one (kubectl label node NAME %s=true), specify one with --gateway-nodes, "+
				"or do not turn off --label-gateway",
			submarinerv1.GatewayNodeLabel,
		)
	}
	return r.chooseGateways(nodes, there, missing, notes)
}

// chooseGateways chooses the missing gateways, and adds to the notes.
func (r request) chooseGateways(
	nodes, there []corev1.Node,
	missing int,
	notes []string,
) (choice, more []string, err error) {
	candidates := suitable(nodes)
	all := len(candidates)
	switch {
	case r.Gateways > len(nodes):
		return nil, nil, fmt.Errorf("--gateways %d: the cluster has %s: specify fewer", r.Gateways,
			words.Count(len(nodes), "node"))
	case r.Gateways == 0 && all == 0:
		return nil, nil, errors.New(
			"no node can become the gateway: none is Ready and schedulable; specify one with --gateway-nodes")
	case missing > all:
		return nil, nil, fmt.Errorf("--gateways %d: the cluster has %s, and %d of the other nodes can become "+
			"gateways: the rest is not Ready, not schedulable, not Linux, or virtual; specify fewer, or name nodes "+
			"with --gateway-nodes", r.Gateways, words.Count(len(there), "gateway node"), all)
	}
	var texts []string
	for _, n := range gatewaynodes.Choose(pointers(there), pointers(candidates), missing) {
		choice = append(choice, n.Name)
		text := n.Name
		if zone := gatewaynodes.Zone(n); zone != "" {
			text += " (zone " + zone + ")"
		}
		texts = append(texts, text)
	}
	plain := slices.DeleteFunc(slices.Clone(candidates), func(n corev1.Node) bool { return gatewaynodes.IsControl(&n) })
	suited := len(plain)
	if suited == 0 {
		suited = len(candidates)
	}
	switch {
	case r.Gateways > 0:
		notes = append(
			notes,
			fmt.Sprintf("new gateway nodes: %s; to choose others, use --gateway-nodes instead of --gateways",
				strings.Join(texts, ", ")),
		)
	case suited > 1:
		notes = append(
			notes,
			fmt.Sprintf(
				"node %s becomes the gateway, the first of %d suitable nodes: specify other nodes with --gateway-nodes",
				choice[0], suited),
		)
	}
	slices.Sort(choice)
	return choice, notes, nil
}

// keptGateways returns the number of gateway nodes that the cluster keeps: see package
// gatewaynodes. It is the number that the user specifies or names, or else specified before; 0 if
// no node is to be labelled. Where an earlier version of join has labelled nodes, which stored no
// number, it is the number of gateway nodes. Nodes that only people have labelled are nothing that
// join was asked for.
func (r request) keptGateways() *int32 {
	there := labelled(r.member.Nodes)
	n := 1
	switch stored := r.lastSubmariner().Spec.Gateways; {
	case r.Gateways > 0:
		n = r.Gateways
	case len(r.GatewayNodes) > 0:
		n = r.gatewayCount()
	case !r.LabelGateway:
		n = 0
	case stored != nil && *stored > 0:
		return stored
	case slices.ContainsFunc(there, func(n corev1.Node) bool {
		return n.Annotations[cluster.LabelledByAnnotation] == cluster.ManagedBy
	}):
		n = len(there)
	}
	return new(int32(min(n, r.mostGateways())))
}

// labelled returns the nodes that are gateways: those with the label that can run our pods.
func labelled(nodes []corev1.Node) []corev1.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n corev1.Node) bool {
		return !cluster.IsGateway(n) || cluster.NoPods(n) != ""
	})
}

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
			errs = append(errs,
				fmt.Errorf("--gateway-nodes: there is no node %q: the cluster has %s", name, words.List(all)))
		case cluster.NoPods(nodes[i]) != "":
			errs = append(errs, fmt.Errorf("--gateway-nodes: no agent runs on node %q, which %s: specify another one",
				name, cluster.NoPods(nodes[i])))
		case !cluster.IsGateway(nodes[i]):
			choice = append(choice, name)
		}
	}
	return choice, errors.Join(errs...)
}

// suitable returns the nodes that can become gateways.
func suitable(nodes []corev1.Node) (out []corev1.Node) {
	for _, n := range nodes {
		if gatewaynodes.Unsuited(&n) == "" && !cluster.IsGateway(n) {
			out = append(out, n)
		}
	}
	return out
}

// pointers returns the nodes as package gatewaynodes takes them.
func pointers(nodes []corev1.Node) (out []*corev1.Node) {
	for i := range nodes {
		out = append(out, &nodes[i])
	}
	return out
}

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

// checkNodeLabels warns of labels of gateway nodes in the configuration of nodes. k3s and RKE2
// apply them at each start, with the credentials of the kubelet, which may not change them
// (cluster/admission_nodes.go), and start the network of the node when that has worked.
func checkNodeLabels(r request) (warnings []string, err error) {
	for _, program := range []string{"k3s", "rke2"} {
		for _, key := range submarinerv1.GatewayNodeKeys() {
			var nodes []string
			for _, n := range r.member.Nodes {
				if slices.Contains(configuredLabels(n, program), key) {
					nodes = append(nodes, n.Name)
				}
			}
			if len(nodes) == 0 {
				continue
			}
			slices.Sort(nodes)
			warnings = append(
				warnings,
				fmt.Sprintf(
					"the configuration of %s on %s sets the label %s: if the label of the Node is another one, or is removed, "+
						"%s cannot start the network of the node when it starts again; set the label with kubectl label node, and remove it from node-label in the configuration",
					program,
					words.List(nodes),
					key,
					program,
				),
			)
		}
	}
	return warnings, nil
}

// configuredLabels returns the keys of the labels that a node's k3s or RKE2 sets: the values of
// --node-label in an annotation, a JSON list of arguments, where an option and its value are two
// items, also if they come from a configuration file. An annotation that is no such list sets none.
func configuredLabels(n corev1.Node, program string) (keys []string) {
	var args []string
	_ = json.Unmarshal([]byte(n.Annotations[program+".io/node-args"]), &args)
	for i, arg := range args {
		if i == 0 || strings.TrimLeft(args[i-1], "-") != "node-label" {
			continue
		}
		for label := range strings.SplitSeq(arg, ",") {
			key, _, _ := strings.Cut(label, "=")
			keys = append(keys, key)
		}
	}
	return keys
}
