package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
)

// This file is about a gateway's share of new flows: its weight, and how it leaves without losing a
// flow.
//
// A gateway that is to be drained is draining at first: it gets no new flows, as far as kernels can
// tell new from old ones, and keeps the flows that it has. When they have ended, or their time is
// over, it is drained: other nodes and clusters do not use it while they have another gateway. It
// keeps its cables all the time, so no packet that is on its way is lost.
//
// The nodes of its cluster read from the Node that it is to be drained, and other clusters from its
// Endpoint. Only the gateway itself decides that it is drained, and announces it in its Endpoint. A
// gateway that leaves the traffic to another one, as only one is to be active, is draining for a
// while, and then a standby: see Standing. A standby that is to be drained is drained at once. So
// is a gateway whose node has booted: it carries nothing.

// share holds the settings of a gateway that the annotations of its node specify.
type share struct {
	weight int           // 0, which drains it, to cable.MaxWeight
	drain  bool          // it is to be drained
	grace  time.Duration // that flows are given to end
}

// readShare reads the annotations of a node. The error contains all mistakes, joined; the default
// applies instead.
func readShare(n *corev1.Node) (share, error) {
	s := share{weight: cable.DefaultWeight, drain: submarinerv1.ToBeDrained(n.Annotations)}
	var errs []error
	if text, ok := n.Annotations[submarinerv1.WeightAnnotation]; ok {
		switch w, err := strconv.Atoi(text); {
		case err != nil || w < 0 || w > cable.MaxWeight:
			errs = append(
				errs,
				fmt.Errorf(
					"node %s: annotation %s is %.80q: it must be a whole number from 1 to %d, or 0 to drain the gateway; until then, its weight is the default, %d",
					n.Name, submarinerv1.WeightAnnotation, text, cable.MaxWeight, cable.DefaultWeight),
			)
		default:
			s.weight = w
		}
	}
	var ok bool
	if s.grace, ok = submarinerv1.GracePeriod(n.Annotations); !ok {
		errs = append(
			errs,
			fmt.Errorf(
				"node %s: annotation %s is %.80q: it must be the time that flows are given to end, from 0s to %v, such as %v; until then, it is %[5]v",
				n.Name, submarinerv1.DrainAnnotation, n.Annotations[submarinerv1.DrainAnnotation],
				submarinerv1.MaxGrace, submarinerv1.DefaultGrace),
		)
	}
	return s, errors.Join(errs...)
}

// shareOf sets the weight of a node as a gateway, and how far it has got on its way out of service.
func (m *Membership) shareOf(node *cable.Node, n *corev1.Node) {
	s, _ := readShare(n)                                // its gateway reports the mistake
	node.Weight = cmp.Or(s.weight, cable.DefaultWeight) // it is used if no other gateway answers
	announced := cable.InService
	for _, e := range m.Endpoints {
		if e.Spec.Hostname == n.Name {
			announced = drainOf(e)
		}
	}
	switch {
	case s.drain && announced == cable.Standby:
		node.Drain = cable.Drained
	case s.drain:
		node.Drain = max(cable.Draining, announced)
	// its agent has not announced yet that it is active: see docs/adr/0029
	case !m.Submariner.Spec.MultiActiveGatewayEnabled, announced == cable.Standby:
		node.Drain = announced
	}
}

// settled is the time after which the other nodes and clusters know that a gateway is draining, so
// that no new flows come.
const settled = 10 * time.Second

// readDraining returns how far the gateway of the snapshot's node has got on its way out of
// service, and since when it is draining.
func readDraining(s Snapshot) (cable.Drain, time.Time) {
	n := Find[*corev1.Node](s, s.Node)
	if n == nil {
		return cable.InService, time.Time{}
	}
	asked, _ := readShare(n)
	standing := s.Standing.Drain
	if !asked.drain && standing != cable.Draining {
		return standing, time.Time{}
	}
	now := s.Now
	since := s.Memory.DrainingSince // the report may be of an earlier drain, if none could be written since
	if since.IsZero() {
		since = now
	}
	if s.Standing.Standby() || s.bare() {
		return cable.Drained, since // nobody uses it
	}
	if !asked.drain || since.Equal(now) {
		return cable.Draining, since
	}
	flows := s.Flows
	idle := !s.Standing.Active || flows.Known && flows.Count == 0 && flows.At.Sub(since) >= settled
	if s.Memory.Drain == cable.Drained || idle || now.Sub(since) >= asked.grace {
		return cable.Drained, since
	}
	return cable.Draining, since
}

// bare reports whether the gateway is to be drained, and has carried nothing since its node has
// booted: see Memory.Bare. Its report of what was before may be gone.
func (s Snapshot) bare() bool {
	n := Find[*corev1.Node](s, s.Node)
	return s.Memory.Bare && n != nil && submarinerv1.ToBeDrained(n.Annotations)
}

// Flows is the number of connections to and from other clusters through a gateway.
type Flows struct {
	Known bool
	Count int
	Some  []string  // the first of them
	At    time.Time // when they were counted
	// Sources is the use of the addresses to which the gateway translates the sources of
	// connections, the fullest first.
	Sources []dataplane.SourceUse
}

// FlowsBetween returns the networks of other clusters, and the addresses of this node and its own
// pods. Connections of these are not counted: they end with their pods, and pass this gateway as
// long as it has cables.
func (m *Mesh) FlowsBetween() (remote, own []netip.Prefix) {
	for _, c := range m.Cables.Wanted {
		remote = append(remote, c.Subnets...)
	}
	slices.SortFunc(remote, netip.Prefix.Compare)
	self := m.Membership.Self
	if self.Pods.IsValid() {
		own = append(own, self.Pods)
	}
	for _, ip := range []netip.Addr{self.IP, m.Offer.Local.PodIP} {
		if ip.IsValid() {
			own = append(own, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	return slices.Compact(remote), own
}

// announceShare adds to the parameters that a gateway announces its share, where it is not the
// default, and whether there are others.
func (o Offer) announceShare(config map[string]string) {
	if w := o.Local.Weight; w != 0 && w != cable.DefaultWeight {
		config[submarinerv1.BackendWeight] = strconv.Itoa(w)
	}
	if d := o.Local.Drain; d != cable.InService {
		config[submarinerv1.BackendDrain] = d.String()
	}
	config[submarinerv1.BackendSiblings] = strconv.FormatBool(o.Local.Siblings)
}

// reportShare adds the gateway's share to its report.
func (o Offer) reportShare(s Snapshot, g *submarinerv1.Gateway) {
	g.Status.Weight = new(cable.DefaultWeight)
	if n := Find[*corev1.Node](s, s.Node); n != nil {
		asked, _ := readShare(n) // shareCondition reports the mistake
		g.Status.Weight = &asked.weight
	}
	if leaving := !o.drainingSince.IsZero(); leaving {
		g.Status.Drain = o.Local.Drain.String()
		at := metav1.NewTime(o.drainingSince.Truncate(time.Second))
		g.Status.DrainingSince = &at
	}
	if f := s.Flows; f.Known && g.Status.HAStatus == submarinerv1.HAStatusActive {
		g.Status.Flows = new(int64(f.Count))
		g.Status.SomeFlows = f.Some
		g.Status.GlobalEgress = egressUses(f.Sources)
	}
}

// ConditionShare is a condition of a Gateway. It is False if the node has an invalid annotation
// about the gateway's weight or about its drain.
const ConditionShare = "Share"

// reasonInvalid is its reason.
const reasonInvalid = "InvalidAnnotation"

// shareCondition returns ConditionShare if it is False.
func shareCondition(s Snapshot, was []metav1.Condition, now time.Time) (out []metav1.Condition) {
	n := Find[*corev1.Node](s, s.Node)
	if n == nil {
		return nil
	}
	if _, err := readShare(n); err != nil {
		out = append(out, condition(was, ConditionShare, false, reasonInvalid, clip(err.Error()), now))
	}
	return out
}
