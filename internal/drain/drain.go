// Package drain takes gateways out of service and puts them back, by annotations of their nodes
// that the agents follow: see agent/mesh/draining.go. It makes nodes gateways, and takes them from
// the gateways, by their label. It refuses to drain the last gateway that works, and waits until
// the agents report that a gateway is drained, or is in service again.
package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/words"
)

// Reads lists the objects of a cluster that must be read.
var Reads = []look.Read{look.ReadGateways, look.ReadNodes}

// Plan holds the changes that a command makes.
type Plan struct {
	// Nodes are the nodes to change, as they are to be.
	Nodes []*corev1.Node
	// Awaited are the gateways that will report that they have followed: those that the command is
	// about, also if their nodes need no change. A node that is no gateway node reports nothing.
	Awaited []string
	// Notes are about gateways that need no change.
	Notes []string
	// Grace is the longest time that the flows of any of these gateways are given to end.
	Grace time.Duration
	// Lost is the reason why the change is refused unless the user forces it; nil if there is none.
	Lost error
	// Kept is the Submariner with the number of gateway nodes to keep; nil if that does not change.
	Kept *v1alpha1.Submariner

	before  []*corev1.Node
	wasKept *v1alpha1.Submariner
}

// change adds a node to the plan.
func (p *Plan) change(n *corev1.Node, alter func(annotations map[string]string)) {
	p.before = append(p.before, n.DeepCopy())
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	alter(n.Annotations)
	p.Nodes = append(p.Nodes, n)
}

// Lines describes the plan, a line for each change.
func (p *Plan) Lines() (lines []string) {
	for i, n := range p.Nodes {
		switch was, is := cluster.IsGateway(*p.before[i]), cluster.IsGateway(*n); {
		case is && !was:
			lines = append(lines, fmt.Sprintf("label node %s: %s=true", n.Name, submarinerv1.GatewayNodeLabel))
		case was && !is:
			lines = append(lines,
				fmt.Sprintf("remove the label %s=true of node %s", submarinerv1.GatewayNodeLabel, n.Name))
		}
		for _, k := range []string{submarinerv1.DrainAnnotation, submarinerv1.WeightAnnotation} {
			was, had := p.before[i].Annotations[k]
			switch is, has := n.Annotations[k]; {
			case has && (!had || is != was):
				lines = append(lines, fmt.Sprintf("annotate node %s: %s=%s", n.Name, k, is))
			case had && !has:
				lines = append(lines, fmt.Sprintf("remove the annotation %s=%s of node %s", k, was, n.Name))
			}
		}
	}
	if p.Kept != nil && *p.Kept.Spec.Gateways != *p.wasKept.Spec.Gateways {
		lines = append(lines, fmt.Sprintf("keep %s instead of %d",
			words.Count(int(*p.Kept.Spec.Gateways), "gateway node"), *p.wasKept.Spec.Gateways))
	}
	return lines
}

// Apply makes the changes. Who keeps the number of gateway nodes learns of a higher number after
// the nodes have their labels, and of a lower one before they lose them: see Lower.
func (p *Plan) Apply(ctx context.Context, c client.Client) error {
	var errs []error
	for i, n := range p.Nodes {
		if err := c.Patch(ctx, n, client.MergeFrom(p.before[i]), client.FieldOwner(kube.FieldOwner)); err != nil {
			errs = append(errs, fmt.Errorf("changing node %s: %w", n.Name, err))
		}
	}
	return errors.Join(append(errs, p.applyKept(ctx, c))...)
}

// Lower lowers the number of gateway nodes that the cluster keeps, before Apply removes labels.
func (p *Plan) Lower(ctx context.Context, c client.Client) error {
	if p.Kept == nil || *p.Kept.Spec.Gateways >= *p.wasKept.Spec.Gateways {
		return nil
	}
	return p.applyKept(ctx, c)
}

// applyKept changes the number of gateway nodes that the cluster keeps.
func (p *Plan) applyKept(ctx context.Context, c client.Client) error {
	if p.Kept == nil {
		return nil
	}
	if err := c.Patch(ctx, p.Kept.DeepCopy(), client.MergeFrom(p.wasKept),
		client.FieldOwner(kube.FieldOwner)); err != nil {
		return fmt.Errorf("changing the number of gateway nodes that the cluster keeps: %w", err)
	}
	return nil
}

// Drain returns the plan that takes gateways out of service. grace is the time that their flows are
// given to end; it replaces that of a gateway that is being drained already if regrace is set. The
// error contains all mistakes in the names, joined.
func Drain(s look.Site, names []string, grace time.Duration, regrace bool) (Plan, error) {
	p := Plan{Awaited: names}
	var errs []error
	for _, name := range names {
		n, err := find(s, name)
		switch {
		case err != nil:
			errs = append(errs, err)
		case !cluster.IsGateway(*n):
			errs = append(
				errs,
				fmt.Errorf("node %q of cluster %q is no gateway node (label %s=true), so there is nothing to drain; %s",
					name, s.Name, submarinerv1.GatewayNodeLabel,
					strings.Replace(gatewayNames(s), "it has", "the cluster has", 1)),
			)
		case submarinerv1.ToBeDrained(n.Annotations) && !regrace:
			p.Notes = append(p.Notes, fmt.Sprintf("gateway %s is %s already", name, stateOf(s, name)))
			current, _ := submarinerv1.GracePeriod(n.Annotations) // its gateway reports a mistake
			p.Grace = max(p.Grace, current)
		default:
			p.change(n, func(a map[string]string) { a[submarinerv1.DrainAnnotation] = grace.String() })
			p.Grace = max(p.Grace, grace)
		}
	}
	if len(errs) == 0 && len(p.Nodes) > 0 {
		p.Lost = last(s, names)
	}
	return p, errors.Join(errs...)
}

// Undrain returns what puts gateways back into service.
func Undrain(s look.Site, names []string) (Plan, error) {
	var p Plan
	var errs []error
	for _, name := range names {
		n, err := find(s, name)
		if err == nil && cluster.IsGateway(*n) {
			p.Awaited = append(p.Awaited, name)
		}
		switch {
		case err != nil:
			errs = append(errs, err)
		case submarinerv1.ToBeDrained(n.Annotations):
			p.change(n, func(a map[string]string) {
				delete(a, submarinerv1.DrainAnnotation)
				if submarinerv1.ToBeDrained(a) { // its weight is 0
					delete(a, submarinerv1.WeightAnnotation)
				}
			})
		case !cluster.IsGateway(*n):
			errs = append(
				errs,
				fmt.Errorf("node %q of cluster %q is no gateway node (label %s=true), and is not drained; %s", name,
					s.Name, submarinerv1.GatewayNodeLabel,
					strings.Replace(gatewayNames(s), "it has", "the cluster has", 1)),
			)
		default:
			p.Notes = append(p.Notes, fmt.Sprintf("gateway %s is not drained", name))
		}
	}
	return p, errors.Join(errs...)
}

// find returns a node.
func find(s look.Site, name string) (*corev1.Node, error) {
	var all []string
	for i := range s.Nodes {
		if s.Nodes[i].Name == name {
			return s.Nodes[i].DeepCopy(), nil
		}
		all = append(all, s.Nodes[i].Name)
	}
	return nil, fmt.Errorf("cluster %q has no node %q: %s%s", s.Name, name, gatewayNames(s), words.Meant(name, all))
}

// Names returns the gateway nodes of a cluster that are to be drained, or that are not.
func Names(s look.Site, drained bool) (names []string) {
	for _, n := range s.Nodes {
		if cluster.IsGateway(n) && submarinerv1.ToBeDrained(n.Annotations) == drained {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

func gatewayNames(s look.Site) string {
	all := append(Names(s, false), Names(s, true)...)
	if slices.Sort(all); len(all) == 0 {
		return "it has no gateway nodes"
	}
	return "it has the gateway nodes " + words.List(all)
}

// report returns what the gateway of a node reports; nil if there is no report.
func report(s look.Site, name string) *submarinerv1.Gateway {
	for i := range s.Gateways {
		if s.Gateways[i].Name == name {
			return &s.Gateways[i]
		}
	}
	return nil
}

// stateOf returns how far a gateway that is to be drained has got.
func stateOf(s look.Site, name string) string {
	if gw := report(s, name); gw != nil && gw.Status.Drain != "" {
		return gw.Status.Drain
	}
	return submarinerv1.Draining
}

// Drained reports whether a gateway that is to be drained is drained. Another grace period does not
// change that.
func Drained(s look.Site, name string) bool {
	return slices.Contains(Names(s, true), name) && stateOf(s, name) == submarinerv1.Drained
}

// last returns an error if no gateway that works is left when some are drained.
func last(s look.Site, names []string) error {
	var why []string
	for _, n := range s.Nodes {
		if !cluster.IsGateway(n) || slices.Contains(names, n.Name) {
			continue
		}
		reason := useless(s, &n)
		if reason == "" {
			return nil
		}
		why = append(why, fmt.Sprintf("gateway %s: %s", n.Name, printer.Clean(reason)))
	}
	slices.Sort(why)
	if len(why) == 0 {
		why = []string{"there is no other gateway node"}
	}
	return fmt.Errorf("draining %s leaves cluster %q without a gateway that works: %s", words.List(names), s.Name,
		strings.Join(why, "; "))
}

// useless returns the reason why a gateway cannot take over the traffic; empty if it can.
func useless(s look.Site, n *corev1.Node) string {
	gw := report(s, n.Name)
	switch {
	case submarinerv1.ToBeDrained(n.Annotations):
		return stateOf(s, n.Name)
	case gw == nil:
		return "no report of its agent"
	case look.Stale(*gw, s.Now) != "":
		return look.Stale(*gw, s.Now)
	case gw.Status.StatusFailure != "":
		return gw.Status.StatusFailure
	case gw.Status.HAStatus != submarinerv1.HAStatusActive && s.Joined() && s.Submariner.Spec.MultiActiveGatewayEnabled:
		return "not active"
	}
	up := func(c submarinerv1.Connection) bool { return c.Status == submarinerv1.Connected }
	if all := gw.Status.Connections; len(all) > 0 && !slices.ContainsFunc(all, up) {
		return "none of its connections is up"
	}
	return ""
}
