package mesh

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/words"
)

// Types of the conditions in Gateway.status and RouteAgent.status. docs/conditions.md
// explains each of them.
const (
	// ConditionSynced is True if the node was seen to hold the plan.
	ConditionSynced = "Synced"
	// ConditionNoConflicts is False if other programs have objects on the node that affect ours.
	ConditionNoConflicts = "NoConflicts"
	// ConditionNodesDistinct is False if nodes of this cluster have addresses that other nodes or
	// other clusters had before, or podCIDRs that are left out.
	ConditionNodesDistinct = "NodesDistinct"
	// ConditionNodesReachable is False if probes find that packets to a gateway of this cluster, or
	// from a gateway to another node, are lost.
	ConditionNodesReachable = "NodesReachable"
	// ConditionPacketsForwarded is False if a firewall of the node drops the packets of other
	// clusters to its pods.
	ConditionPacketsForwarded = "PacketsForwarded"
	// ConditionPublicIP is False if the public address that a user specifies for the
	// gateway cannot be used.
	ConditionPublicIP = "PublicIP"
	// ConditionRefused is True if endpoints of other clusters are not connected.
	ConditionRefused = "Refused"
	// ConditionCablePoliciesValid is False if pairs keep their cables because the policy
	// that decides has a mistake.
	ConditionCablePoliciesValid = "CablePoliciesValid"
	// ConditionCablesChanged is False if a pair has been changing its cable for too long, because
	// the new cable does not answer.
	ConditionCablesChanged = "CablesChanged"
	// ConditionBrokerSynced is True if this cluster and the broker hold the same objects.
	ConditionBrokerSynced = submarinerv1.ConditionBrokerSynced
	// ConditionPacketsDropped is True while the node drops packets that no cable accepts. Nothing
	// is wrong with the node.
	ConditionPacketsDropped = "PacketsDropped"
	// ConditionPreSharedKey is False if the gateway's pod has no pre-shared key.
	ConditionPreSharedKey = "PreSharedKey"
)

// Reasons of these conditions.
const (
	reasonFailed          = "Failed"
	reasonCableFailed     = "CableFailed"
	reasonSeen            = "Seen"
	reasonEndpointRefused = "EndpointRefused"
	reasonUnusable        = "Unusable"
	reasonForeignObjects  = "ForeignObjects"
	reasonKept            = "CableKept"
	reasonNoAnswer        = "NoAnswer"
	reasonSynced          = "Synced"
	reasonUninstalled     = "Uninstalled"
	reasonMissing         = "Missing"
	reasonSameAddress     = "SameAddress"
	reasonSamePods        = "SamePodNetwork"
	reasonFirewall        = "Firewall"
	reasonNotAccepted     = "NotAccepted"
)

// ReasonWaiting is the reason of a condition that is False because it is too early to
// tell.
const ReasonWaiting = "Waiting"

// Wrong reports whether a condition of an agent means that something is wrong.
func Wrong(c metav1.Condition) bool {
	if c.Type == ConditionRefused {
		return c.Status == metav1.ConditionTrue
	}
	return c.Status == metav1.ConditionFalse && c.Reason != ReasonWaiting
}

// conditions returns the conditions that all roles report. old are the conditions that
// were reported before.
func conditions(old []metav1.Condition, p NodePlan, o Outcome) []metav1.Condition {
	var cs []metav1.Condition
	add := func(kind string, is bool, reason, message string) {
		cs = append(cs, condition(old, kind, is, reason, message, o.Now))
	}
	switch {
	case o.failure() != nil:
		add(ConditionSynced, false, reasonFailed, clip(o.Err.Error()))
	case o.Err != nil:
		add(ConditionSynced, false, reasonCableFailed, clip(p.brokenText(o)))
	default:
		add(ConditionSynced, true, reasonSeen, "the node holds what was planned")
	}
	if len(o.Conflicts) > 0 {
		add(ConditionNoConflicts, false, reasonForeignObjects, clip(strings.Join(o.Conflicts, "\n")))
	}
	m := p.Mesh
	if m == nil {
		return cs
	}
	if text := m.Snapshot.Dropping.text(); text != "" {
		add(ConditionPacketsDropped, true, reasonNotAccepted, clip(text))
	}
	if texts := Refusals(m.Cables.Refused, o.Exchange); len(texts) > 0 {
		add(ConditionRefused, true, reasonEndpointRefused, clip(strings.Join(texts, "\n")))
	}
	switch collisions, contested := slices.Concat(m.Membership.Collisions,
		m.Accepted.Collisions), m.Membership.Contested; {
	case len(collisions) > 0:
		add(ConditionNodesDistinct, false, reasonSameAddress,
			clip(strings.Join(slices.Concat(collisions, contested), "\n")))
	case len(contested) > 0:
		add(ConditionNodesDistinct, false, reasonSamePods, clip(strings.Join(contested, "\n")))
	}
	if lost := o.Health.unreachable(); len(lost) > 0 {
		add(ConditionNodesReachable, false, reasonNoAnswer, clip(strings.Join(lost, "\n")))
	}
	if text := p.refusedForwarding(m.Snapshot.Forwarded); text != "" {
		add(ConditionPacketsForwarded, false, reasonFirewall, clip(text))
	}
	if kept := m.Cables.Kept; len(kept) > 0 {
		add(ConditionCablePoliciesValid, false, reasonKept, clip(strings.Join(slices.Sorted(maps.Values(kept)), "\n")))
	}
	if stuck := p.stuckChanges(o); len(stuck) > 0 {
		add(ConditionCablesChanged, false, reasonNoAnswer, clip(strings.Join(stuck, "\n")))
	}
	if err := m.Snapshot.PublicIPErr; err != nil {
		add(ConditionPublicIP, false, reasonUnusable, clip(err.Error()))
	}
	switch e := o.Exchange; {
	case e == nil:
	case len(e.Errors) > 0:
		reason := reasonFailed
		if e.NotRead {
			reason = submarinerv1.ReasonBrokerNotRead
		}
		add(ConditionBrokerSynced, false, reason, clip(strings.Join(e.Errors, "\n")))
	case e.LastSync.IsZero():
		add(ConditionBrokerSynced, false, ReasonWaiting, "no contact with the broker yet")
	default:
		add(ConditionBrokerSynced, true, reasonSynced, "this cluster and the broker hold the same objects")
	}
	if m.Membership.Leaving() && o.Err == nil {
		add(submarinerv1.ConditionClean, true, reasonUninstalled, "the node holds nothing of this agent any more")
	}
	return cs
}

// condition returns a condition as of now. Among old is the one that was reported
// before, which keeps its time if its status has not changed.
func condition(old []metav1.Condition, kind string, is bool, reason, message string, now time.Time) metav1.Condition {
	c := metav1.Condition{
		Type:               kind,
		Status:             metav1.ConditionFalse,
		Reason:             reason,
		Message:            message,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
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

// maxRefused is the maximum number of refused endpoints in a report. A member can announce
// thousands.
const maxRefused = 50

// Refusals describes the objects of other clusters that are not used, and why: the first
// maxRefused, after a line with their number if there are more. e is nil for endpoints alone.
func Refusals(refused []Refusal, e *ExchangeStatus) []string {
	var texts []string
	more := max(0, len(refused)-maxRefused)
	for _, r := range refused[:len(refused)-more] {
		texts = append(texts,
			fmt.Sprintf("endpoint %q of cluster %q is not connected to: %v", r.Spec.CableName, r.Spec.ClusterID, r.Err))
	}
	if e != nil {
		texts = append(texts, e.Refused...)
		more += e.RefusedMore
	}
	if more > 0 {
		texts = append(
			[]string{fmt.Sprintf("%d objects of other clusters are not used; these are the first", len(texts)+more)},
			texts...)
	}
	return texts
}

// clip shortens a message to far less than the 32,768 bytes that a condition may hold.
func clip(s string) string { return words.Clip(s, 2000) }
