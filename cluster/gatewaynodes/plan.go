package gatewaynodes

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
	"subctl/internal/words"
)

// How the number of gateway nodes that somebody asked for is kept.
//
// A gateway node may vanish: an autoscaler or an upgrade deletes its Node, or its label is lost.
// Then another node gets the label at once. A Node that exists is left alone if a person chose it,
// by labelling or naming it, or by giving it a public address: routers may forward to this very
// node, so that no other can stand in for longer than it takes to come back. Only if its machine is
// about to be removed does another node get the label early. A node that join, or this plan, has
// chosen is replaced also if it is cordoned, or not Ready for some time: first another node gets
// the label, and when that gateway is connected, the node loses it. So a node that comes back later
// changes nothing, and no label moves twice for one fault.
//
// While nodes fail one after another, or an API server loses sight of all of them, the plan labels
// no more nodes than twice the number that was asked for, and one.

// Absence is the time for which a gateway node must not be Ready before another one replaces it. A
// kubelet that restarts is back before; a node that has failed is not Ready only after 40 s.
const Absence = 30 * time.Second

// Cluster is what a plan depends on.
type Cluster struct {
	Asked int // the number of gateway nodes
	// Named are nodes that a person named as gateways: they are labelled before others, and left
	// alone while they exist.
	Named []string
	Nodes []*corev1.Node // sorted by name
	// Connected are the nodes whose gateways report that they are connected, or that there is
	// nothing to connect to.
	Connected map[string]bool
	Now       time.Time
}

// Plan is what to change, and what to report.
type Plan struct {
	// Label and Unlabel are the nodes that become gateways, and that no longer are.
	Label, Unlabel []*corev1.Node
	// Shortage explains why fewer gateway nodes work than were asked for; empty if there are
	// enough.
	Shortage string
	// Again is the time after which the plan changes although nothing else does; 0 for none.
	Again time.Duration
}

// Keep returns what keeps the number of gateway nodes. It does nothing if nobody asked for one.
func Keep(c Cluster) (p Plan) {
	if c.Asked < 1 {
		return p
	}
	s := c.survey()
	p.Again = s.again
	limit := max(0, min(2*c.Asked+1-s.ours, trust.MaxGateways-s.gateways()))
	p.Label = c.choose(s.staying, s.candidates, min(s.missing(c), limit))
	ours := s.ours
	for _, n := range s.replaced { // nodes that were labelled by hand besides ours replace none of ours
		if s.connected >= c.Asked && ours > c.Asked && !c.chosen(n) {
			p.Unlabel = append(p.Unlabel, n)
			ours--
		}
	}
	if s.working < c.Asked {
		p.Shortage = s.shortage(c, p.Label)
	}
	return p
}

// survey is what a plan knows of the nodes.
type survey struct {
	staying    []*corev1.Node // gateway nodes that are not replaced
	replaced   []*corev1.Node // gateway nodes whose place another node is to take
	candidates []*corev1.Node // nodes that can become gateways
	unsuited   []string       // nodes that cannot, with the reason
	faults     []string       // of gateway nodes
	working    int            // gateway nodes without a fault
	connected  int            // those of staying that work and are connected
	ours       int            // gateway nodes that join, or this plan, has labelled
	again      time.Duration  // see Plan.Again
}

func (c Cluster) survey() (s survey) {
	for _, n := range c.Nodes {
		switch why := Unsuited(n); {
		case IsGateway(n):
			s.addGateway(c, n)
		case why != "":
			s.unsuited = append(s.unsuited, n.Name+": "+why)
		default:
			s.candidates = append(s.candidates, n)
		}
	}
	return s
}

func (s *survey) addGateway(c Cluster, n *corev1.Node) {
	is := c.state(n)
	if is.again > 0 && (s.again == 0 || is.again < s.again) {
		s.again = is.again
	}
	if is.fault != "" {
		s.faults = append(s.faults, "gateway node "+n.Name+" "+is.fault)
	} else {
		s.working++
	}
	if isOurs(n) {
		s.ours++
	}
	if is.replace {
		s.replaced = append(s.replaced, n)
		return
	}
	s.staying = append(s.staying, n)
	if c.Connected[n.Name] && is.fault == "" {
		s.connected++
	}
}

// gateways returns the number of nodes with the label of gateways.
func (s *survey) gateways() int { return len(s.staying) + len(s.replaced) }

// missing returns the number of nodes that are to become gateways.
func (s *survey) missing(c Cluster) int { return c.Asked - len(s.staying) }

// shortage returns Plan.Shortage where the nodes of label become gateways.
func (s *survey) shortage(c Cluster, label []*corev1.Node) string {
	text := fmt.Sprintf("%d of %s", s.working, words.Count(c.Asked, "gateway node"))
	text += map[bool]string{true: " works", false: " work"}[c.Asked == 1]
	for _, fault := range s.faults {
		text += "; " + fault
	}
	missing := s.missing(c) > 0
	switch {
	case len(label) > 0:
		text += "; becoming a gateway: " + words.List(names(label))
	case missing && len(s.candidates) > 0:
		text += fmt.Sprintf("; no other node becomes one while %d have the label: repair these nodes, or remove "+
			"their label (kubectl label node NAME %s-)", s.gateways(), submarinerv1.GatewayNodeLabel)
	case missing && len(s.unsuited) == 0:
		text += "; there is no other node: add one"
	case missing:
		text += "; no other node can become one: " + words.List(s.unsuited)
	}
	return text
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
		hint = fmt.Sprintf(", and is not replaced while it exists, because a person chose it (to replace it, kubectl "+
			"label node %s %s-)", n.Name, submarinerv1.GatewayNodeLabel)
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

// chosen reports whether a person chose a gateway node. Those that have labelled it by hand have
// not marked it as ours.
func (c Cluster) chosen(n *corev1.Node) bool {
	_, annotated := n.Annotations[submarinerv1.PublicIPAnnotation]
	_, labelled := n.Labels[submarinerv1.PublicIPAnnotation]
	return !isOurs(n) || annotated || labelled || slices.Contains(c.Named, n.Name)
}

// choose returns the nodes that become gateways: first those that are named, then those that have
// lost their label, and then as Choose does.
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

func names(nodes []*corev1.Node) (out []string) {
	for _, n := range nodes {
		out = append(out, n.Name)
	}
	return out
}
