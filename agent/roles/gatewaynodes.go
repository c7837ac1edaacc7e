package roles

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster/gatewaynodes"
	"subctl/dataplane"
)

// GatewayNodes is the role of the agent that keeps the number of gateway nodes that join was asked
// for: it labels other nodes in place of those that are gone, and reports on the Submariner while
// there are fewer. One agent of a cluster does so, on any node; another one waits to take over. It
// accesses no kernel.
func GatewayNodes() role.Role {
	return role.Role{
		Name: "gateway-nodes", MetricsPort: dataplane.GatewayNodesMetricsPort,
		ProbePort: dataplane.GatewayNodesProbePort,
		Resync:    time.Minute,
		Watches:   []role.Object{&v1alpha1.Submariner{}, &submarinerv1.Gateway{}, &corev1.Node{}},
		Slim:      slimForGatewayNodes,
		Parts:     []role.Part{role.Leader},
		Plan:      planGatewayNodes,
		Report:    reportGatewayNodes,
	}
}

// Reasons of v1alpha1.ConditionGateways.
const (
	reasonEnough = "Enough"
	reasonTooFew = "TooFew"
)

// planGatewayNodes decides which nodes are gateways. The kernel of the node holds nothing of it.
func planGatewayNodes(s role.Snapshot) (role.Plan, error) {
	sub := s.Submariner()
	if sub == nil {
		return role.Plan{}, role.ErrNotJoined
	}
	decided := &gatewaynodes.Plan{}
	p := role.Plan{State: dataplane.State{}, Decisions: decided}
	if sub.DeletionTimestamp != nil || sub.Spec.Gateways == nil {
		return p, nil
	}
	c := gatewaynodes.Cluster{
		Asked: int(*sub.Spec.Gateways), Named: sub.Spec.GatewayNodes, Nodes: role.List[*corev1.Node](s),
		Connected: map[string]bool{}, Now: s.Now,
	}
	for _, g := range role.List[*submarinerv1.Gateway](s) {
		c.Connected[g.Name] = isConnected(g)
	}
	*decided = gatewaynodes.Keep(c)
	p.Again = decided.Again
	return p, nil
}

// isConnected reports whether a gateway has reported that it works and is connected, or has nothing
// to connect to.
func isConnected(g *submarinerv1.Gateway) bool {
	up := func(c submarinerv1.Connection) bool { return c.Status == submarinerv1.Connected }
	return g.Status.StatusFailure == "" &&
		(len(g.Status.Connections) == 0 || slices.ContainsFunc(g.Status.Connections, up))
}

func reportGatewayNodes(s role.Snapshot, p role.Plan, o role.Outcome) role.Report {
	var r role.Report
	sub := s.Submariner()
	decided, is := p.Decisions.(*gatewaynodes.Plan)
	if sub == nil || !is || sub.DeletionTimestamp != nil {
		return r
	}
	// The empty values are removed. Another Node with the name is not changed.
	relabel := func(n *corev1.Node, label, by string) {
		r.Label = append(r.Label, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, UID: n.UID,
			Labels:      map[string]string{submarinerv1.GatewayNodeLabel: label},
			Annotations: map[string]string{submarinerv1.LabelledByAnnotation: by},
		}})
	}
	for _, n := range decided.Label {
		relabel(n, "true", submarinerv1.ManagedBy)
	}
	for _, n := range decided.Unlabel {
		relabel(n, "", "")
	}
	gatewaysCondition(&r, sub, decided, o.Now)
	return r
}

// gatewaysCondition reports whether there are enough gateway nodes; nothing if nobody has asked for
// a number.
func gatewaysCondition(r *role.Report, sub *v1alpha1.Submariner, p *gatewaynodes.Plan, now time.Time) {
	next := sub.DeepCopy()
	conds := &next.Status.Conditions
	changed := false
	switch {
	case sub.Spec.Gateways == nil || *sub.Spec.Gateways == 0:
		changed = meta.RemoveStatusCondition(conds, v1alpha1.ConditionGateways)
	case p.Shortage == "":
		changed = meta.SetStatusCondition(conds, role.Condition(*conds, v1alpha1.ConditionGateways, true, reasonEnough,
			"as many gateway nodes work as join was asked for", now))
	default:
		changed = meta.SetStatusCondition(conds,
			role.Condition(*conds, v1alpha1.ConditionGateways, false, reasonTooFew, role.Clip(p.Shortage), now))
	}
	if changed {
		r.UpdateStatus = append(r.UpdateStatus, next)
	}
}

// slimForGatewayNodes returns what the role of GatewayNodes looks at of an object: its agent holds
// all nodes of the cluster, whose kubelets update them all the time, and the reports of gateways,
// which have thousands of connections.
func slimForGatewayNodes(o role.Object) role.Object {
	switch o := o.(type) {
	case *corev1.Node:
		return slimCandidate(o)
	case *submarinerv1.Gateway:
		slim := &submarinerv1.Gateway{ObjectMeta: role.Identity(o.ObjectMeta)}
		slim.Status.StatusFailure = o.Status.StatusFailure
		if conns := o.Status.Connections; len(conns) > 0 {
			slim.Status.Connections = []submarinerv1.Connection{{}}
			if isConnected(o) {
				slim.Status.Connections[0].Status = submarinerv1.Connected
			}
		}
		return slim
	}
	return o
}

// slimCandidate keeps what decides whether a node is a gateway, or can become one.
func slimCandidate(n *corev1.Node) *corev1.Node {
	slim := &corev1.Node{ObjectMeta: role.Identity(n.ObjectMeta)}
	for key := range n.Labels {
		if gatewaynodes.KeepsLabel(key) {
			role.KeepLabel(&slim.ObjectMeta, n.ObjectMeta, key)
		}
	}
	role.KeepAnnotation(&slim.ObjectMeta, n.ObjectMeta, submarinerv1.LabelledByAnnotation)
	role.KeepAnnotation(&slim.ObjectMeta, n.ObjectMeta, submarinerv1.PublicIPAnnotation)
	slim.Spec.Unschedulable = n.Spec.Unschedulable
	for _, t := range n.Spec.Taints {
		if gatewaynodes.KeepsTaint(t.Key) {
			slim.Spec.Taints = append(slim.Spec.Taints, corev1.Taint{Key: t.Key})
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			slim.Status.Conditions = []corev1.NodeCondition{
				{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime},
			}
		}
	}
	return slim
}
