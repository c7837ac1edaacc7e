package gatewaynodes

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
	"subctl/internal/words"
)

// This file keeps the number of gateway nodes that somebody asked for.
//
// A gateway node may vanish: an autoscaler or an upgrade deletes its Node, or its label is lost. Then another node gets the label at once. A
// Node that exists is left alone if a person chose it, by labelling or naming it, or by giving it a public address: routers may forward
// to this very node, so that no other can stand in for longer than it takes to come back. Only if its machine is about to be removed
// does another node get the label early. A node that join, or this plan, has chosen is replaced also if it is cordoned, or not Ready for
// some time: first another node gets the label, and when that gateway is connected, the node loses it. So a node that comes
// back later changes nothing, and no label moves twice for one fault.
//
// While nodes fail one after another, or an API server loses sight of all of them, the plan labels no more nodes than twice the number that was
// asked for, and one.

// Absence is the time for which a gateway node must not be Ready before another one replaces it. A kubelet that restarts is back
// before; a node that has failed is not Ready only after 40 s.
const Absence = 30 * time.Second

// Cluster is what a plan depends on.
type Cluster struct {
	Asked int // the number of gateway nodes
	// Named are nodes that a person named as gateways: they are labelled before others, and left alone while they exist.
	Named []string
	Nodes []*corev1.Node // sorted by name
	// Connected are the nodes whose gateways report that they are connected, or that there is nothing to connect to.
	Connected map[string]bool
	Now       time.Time
}

// Plan is what to change, and what to report.
type Plan struct {
	// Label and Unlabel are the nodes that become gateways, and that no longer are.
	Label, Unlabel []*corev1.Node
	// Working is the number of gateway nodes that work, and Shortage explains why there are fewer than asked for; empty if there are enough.
	Working  int
	Shortage string
	// Again is the time after which the plan changes although nothing else does; 0 for none.
	Again time.Duration
}

// Keep returns what keeps the number of gateway nodes. It does nothing if nobody asked for one.
func Keep(c Cluster) (p Plan) {
	if c.Asked < 1 {
		return p
	}
	var gateways, working, replaced, candidates []*corev1.Node
	var faults, unsuited []string
	connected, ours := 0, 0
	for _, n := range c.Nodes {
		if !IsGateway(n) {
			if why := Unsuited(n); why != "" {
				unsuited = append(unsuited, n.Name+": "+why)
			} else {
				candidates = append(candidates, n)
			}
			continue
		}
		gateways = append(gateways, n)
		s := c.state(n)
		if s.again > 0 && (p.Again == 0 || s.again < p.Again) {
			p.Again = s.again
		}
		if s.fault != "" {
			faults = append(faults, "gateway node "+n.Name+" "+s.fault)
		} else {
			p.Working++
		}
		if isOurs(n) {
			ours++
		}
		if s.replace {
			replaced = append(replaced, n)
			continue
		}
		working = append(working, n)
		if c.Connected[n.Name] && s.fault == "" {
			connected++
		}
	}
	missing := c.Asked - len(working)
	limit := max(0, min(2*c.Asked+1-ours, trust.MaxGateways-len(gateways)))
	p.Label = c.choose(working, candidates, min(missing, limit))
	for _, n := range replaced { // nodes that were labelled by hand besides ours replace none of ours
		if connected >= c.Asked && ours > c.Asked && !c.chosen(n) {
			p.Unlabel = append(p.Unlabel, n)
			ours--
		}
	}
	if p.Working >= c.Asked {
		return p
	}
	p.Shortage = fmt.Sprintf("%d of %s", p.Working, words.Count(c.Asked, "gateway node"))
	p.Shortage += map[bool]string{true: " works", false: " work"}[c.Asked == 1]
	for _, fault := range faults {
		p.Shortage += "; " + fault
	}
	switch {
	case len(p.Label) > 0:
		p.Shortage += "; becoming a gateway: " + words.List(names(p.Label))
	case missing > 0 && len(candidates) > 0:
		p.Shortage += fmt.Sprintf("; no other node becomes one while %d have the label: repair these nodes, or remove their label "+
			"(kubectl label node NAME %s-)", len(gateways), submarinerv1.GatewayNodeLabel)
	case missing > 0 && len(unsuited) == 0:
		p.Shortage += "; there is no other node: add one"
	case missing > 0:
		p.Shortage += "; no other node can become one: " + strings.Join(clipped(unsuited), ", ")
	}
	return p
}

// state is the state of a gateway node.
type state struct {
	fault   string        // why it does not work, after its name; empty if it does
	replace bool          // another node is to take its place
	again   time.Duration // after which that changes; 0 for never
}

// state returns the state of a gateway node.
func (c Cluster) state(n *corev1.Node) state {
	hint := ""
	if c.chosen(n) {
		hint = fmt.Sprintf(", and is not replaced while it exists, because a person chose it (to replace it, kubectl label node %s %s-)", n.Name, submarinerv1.GatewayNodeLabel)
	}
	switch why := Leaving(n); {
	case why != "":
		return state{fault: "is about to be removed (" + why + ")", replace: true}
	case !IsReady(n):
		absent := Absence
		if r := ready(n); r != nil {
			absent = c.Now.Sub(r.LastTransitionTime.Time)
		}
		if absent < Absence {
			return state{again: Absence - absent}
		}
		return state{fault: "is not Ready" + hint, replace: !c.chosen(n)}
	case n.Spec.Unschedulable && !c.chosen(n):
		return state{fault: "is cordoned", replace: true}
	}
	return state{}
}

// chosen reports whether a person chose a gateway node. Those that have labelled it by hand have not marked it as ours.
func (c Cluster) chosen(n *corev1.Node) bool {
	_, annotated := n.Annotations[submarinerv1.PublicIPAnnotation]
	_, labelled := n.Labels[submarinerv1.PublicIPAnnotation]
	return !isOurs(n) || annotated || labelled || slices.Contains(c.Named, n.Name)
}

// choose returns the nodes that become gateways: first those that are named, then those that have lost their label, and then as
// Choose does.
func (c Cluster) choose(there, candidates []*corev1.Node, n int) (choice []*corev1.Node) {
	for _, first := range []func(*corev1.Node) bool{
		func(n *corev1.Node) bool { return slices.Contains(c.Named, n.Name) },
		isOurs,
		func(*corev1.Node) bool { return true },
	} {
		var of []*corev1.Node
		for _, node := range candidates {
			if first(node) && !slices.Contains(choice, node) {
				of = append(of, node)
			}
		}
		choice = append(choice, Choose(slices.Concat(there, choice), of, n-len(choice))...)
	}
	return choice
}

// listed is the largest number of unsuitable nodes in a message.
const listed = 10

func clipped(list []string) []string {
	if more := len(list) - listed; more > 0 {
		return append(slices.Clone(list[:listed]), fmt.Sprintf("and %d more", more))
	}
	return list
}

func names(nodes []*corev1.Node) (out []string) {
	for _, n := range nodes {
		out = append(out, n.Name)
	}
	return out
}
