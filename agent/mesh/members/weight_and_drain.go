package members

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
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
	Weight int           // 0, which drains it, to cable.MaxWeight
	Drain  bool          // it is to be drained
	Grace  time.Duration // that flows are given to end
}

// ReadShare reads the annotations of a node. The error contains all mistakes, joined; the default
// applies instead.
func ReadShare(n *corev1.Node) (share, error) {
	s := share{Weight: cable.DefaultWeight, Drain: submarinerv1.ToBeDrained(n.Annotations)}
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
			s.Weight = w
		}
	}
	var ok bool
	if s.Grace, ok = submarinerv1.GracePeriod(n.Annotations); !ok {
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

// setServiceState sets the weight of a node as a gateway, and how far it has got on its way out of
// service.
func (m *Membership) setServiceState(node *cable.Node, n *corev1.Node) {
	s, _ := ReadShare(n)                                // its gateway reports the mistake
	node.Weight = cmp.Or(s.Weight, cable.DefaultWeight) // it is used if no other gateway answers
	announced := cable.InService
	for _, e := range m.Endpoints {
		if e.Endpoint.Spec.Hostname == n.Name {
			announced = e.Gateway.Drain
		}
	}
	switch {
	case s.Drain && announced == cable.Standby:
		node.Drain = cable.Drained
	case s.Drain:
		node.Drain = max(cable.Draining, announced)
	// its agent has not announced yet that it is active: see docs/adr/0029
	case !m.Submariner.Spec.MultiActiveGatewayEnabled, announced == cable.Standby:
		node.Drain = announced
	}
}

// AsStandby returns a copy of an Endpoint of this cluster that announces a standby.
func AsStandby(e *submarinerv1.Endpoint) *submarinerv1.Endpoint {
	marked := &submarinerv1.Endpoint{
		ObjectMeta: metav1.ObjectMeta{Name: e.Name, Namespace: e.Namespace, UID: e.UID},
		Spec:       *e.Spec.DeepCopy(),
	}
	if marked.Spec.BackendConfig == nil {
		marked.Spec.BackendConfig = map[string]string{}
	}
	marked.Spec.BackendConfig[submarinerv1.BackendDrain] = submarinerv1.Standby
	return marked
}

// DrainOf returns how far the gateway of an Endpoint has got on its way out of service, as it
// announces.
func DrainOf(e *submarinerv1.Endpoint) cable.Drain {
	d, _ := cable.ParseDrain(e.Spec.BackendConfig[submarinerv1.BackendDrain]) // cable.Parse reports the mistake
	return d
}
