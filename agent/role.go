package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/exchange"
	"subctl/cable"
	"subctl/dataplane"
)

// Role is one pod's worth of duties. Its methods are pure functions.
type Role interface {
	// Name is the subcommand of "subctl agent", the name in logs and in field owners.
	Name() string
	// Owner says what of the kernel is this role's.
	Owner() dataplane.Owner
	// Watches lists the kinds of objects that the role looks at.
	Watches() []client.Object
	// Plan returns what the node's kernel should hold.
	Plan(Snapshot) (Plan, error)
	// Report returns what the API server should be told.
	Report(Snapshot, Plan, Outcome) Report
}

// Plan is what a role makes of a Snapshot.
type Plan struct {
	State dataplane.State
	// Sweep lists owners whose agent does not run on this node any more and whose
	// objects have to go.
	Sweep []dataplane.Owner
	// Probes are the addresses to ping.
	Probes Probes
	// Using is what carries the traffic to each remote gateway once the node holds
	// State, by cable name.
	Using map[string]Using

	view   *view         // nil if the snapshot could not be understood
	cables []cable.Cable // what State joins, in the order of links
	links  []cable.Link
}

// Outcome is what came of a plan.
type Outcome struct {
	// Err is why the node does not hold the plan; nil if it was seen to.
	Err error
	// Health is the result of the probes, by name of the probe.
	Health map[string]Health
	// Broker is the state of the exchange with the broker; nil if this agent does
	// not take part in it.
	Broker *exchange.Status
	Now    time.Time
}

// Report is what the API server should hold.
type Report struct {
	Apply  []client.Object
	Delete []client.Object
	// Status are objects whose status is applied, as far as it is given.
	Status []client.Object
	// Update are objects that somebody else made, as they should be: what has changed
	// since they were read is not overwritten.
	Update []client.Object
}

// PlanNode returns everything that a node's kernel should hold, of all roles: what
// "subctl show plan" prints.
func PlanNode(s Snapshot) (dataplane.State, error) {
	all := dataplane.State{}
	for _, r := range []Role{Gateway{}, Route{}} {
		p, err := r.Plan(s)
		if err != nil {
			return nil, err
		}
		if err := all.Merge(p.State); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Condition types of Gateway.status and RouteAgent.status.
const (
	// ConditionSynced: the node was seen to hold the plan.
	ConditionSynced = "Synced"
	// ConditionPublicIP is false if what a user says of the gateway's public address
	// cannot be used.
	ConditionPublicIP = "PublicIP"
	// ConditionRefused: some endpoints of other clusters are not connected to.
	ConditionRefused = "Refused"
	// ConditionCablePoliciesValid is false if some pairs keep the cable that they have, as
	// the policy that decides now has a mistake.
	ConditionCablePoliciesValid = "CablePoliciesValid"
	// ConditionBrokerSynced: this cluster and the broker hold the same.
	ConditionBrokerSynced = "BrokerSynced"
)

// Wrong says whether a condition of an agent says that something is wrong.
func Wrong(c metav1.Condition) bool {
	if c.Type == ConditionRefused {
		return c.Status == metav1.ConditionTrue
	}
	return c.Status == metav1.ConditionFalse && c.Reason != reasonWaiting
}

// Reasons of these conditions; docs/conditions.md says what each of them means.
const (
	reasonFailed          = "Failed"
	reasonSeen            = "Seen"
	reasonEndpointRefused = "EndpointRefused"
	reasonUnusable        = "Unusable"
	reasonKept            = "CableKept"
	reasonSynced          = "Synced"
	reasonWaiting         = "Waiting" // False because it is too early to say more
	reasonUninstalled     = "Uninstalled"
)

// conditions says how it went. old keeps the times of what did not change.
func conditions(old []metav1.Condition, p Plan, o Outcome) []metav1.Condition {
	var cs []metav1.Condition
	add := func(kind string, is bool, reason, message string) {
		cs = append(cs, condition(old, kind, is, reason, message, o.Now))
	}
	if o.Err != nil {
		add(ConditionSynced, false, reasonFailed, clip(o.Err.Error()))
	} else {
		add(ConditionSynced, true, reasonSeen, "the node holds what was planned")
	}
	if p.view == nil {
		return cs
	}
	if texts := refusals(p.view, o.Broker); len(texts) > 0 {
		add(ConditionRefused, true, reasonEndpointRefused, clip(strings.Join(texts, "\n")))
	}
	if kept := p.view.kept; len(kept) > 0 {
		add(ConditionCablePoliciesValid, false, reasonKept, clip(strings.Join(slices.Sorted(maps.Values(kept)), "\n")))
	}
	if err := p.view.snap.PublicIPErr; err != nil {
		add(ConditionPublicIP, false, reasonUnusable, clip(err.Error()))
	}
	switch b := o.Broker; {
	case b == nil:
	case len(b.Errors) > 0:
		add(ConditionBrokerSynced, false, reasonFailed, clip(strings.Join(b.Errors, "\n")))
	case b.LastSync.IsZero():
		add(ConditionBrokerSynced, false, reasonWaiting, "the broker was not heard of yet")
	default:
		add(ConditionBrokerSynced, true, reasonSynced, "this cluster and the broker hold the same")
	}
	if p.view.leaving() && o.Err == nil {
		add(submarinerv1.ConditionClean, true, reasonUninstalled, "the node holds nothing of this agent any more")
	}
	return cs
}

// condition makes a condition as of now. old keeps the time of what did not change.
func condition(old []metav1.Condition, kind string, is bool, reason, message string, now time.Time) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}
	if is {
		c.Status = metav1.ConditionTrue
	}
	for _, was := range old {
		if was.Type == kind && was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
	}
	return c
}

// refusals says which objects of other clusters are not used, and why; of many the first.
func refusals(v *view, b *exchange.Status) []string {
	var texts []string
	more := max(0, len(v.refused)-maxRefused)
	for _, r := range v.refused[:len(v.refused)-more] {
		texts = append(texts, fmt.Sprintf("endpoint %q of cluster %q is not connected to: %v", r.spec.CableName, r.spec.ClusterID, r.err))
	}
	if b != nil {
		for _, r := range b.Refused {
			texts = append(texts, r.String())
		}
		more += b.RefusedMore
	}
	if more > 0 {
		texts = append([]string{fmt.Sprintf("%d objects of other clusters are not used; these are the first", len(texts)+more)}, texts...)
	}
	return texts
}

// clip keeps a message within what conditions may hold (32768 bytes), far below it.
func clip(s string) string {
	const most = 2000
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + " …"
	}
	return s
}

func isGatewayNode(n *corev1.Node) bool { return n.Labels[submarinerv1.GatewayNodeLabel] == "true" }
