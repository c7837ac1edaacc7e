package role

import (
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

// Condition returns a condition as of now. Among old is the one that was reported
// before, which keeps its time if its status has not changed.
func Condition(old []metav1.Condition, kind string, is bool, reason, message string, now time.Time) metav1.Condition {
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

// Clip shortens a message to far less than the 32,768 bytes that a condition may hold.
func Clip(s string) string { return words.Clip(s, 2000) }
