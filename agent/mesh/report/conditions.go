package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
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

// Conditions returns the conditions that all roles report. old are the conditions that
// were reported before.
func Conditions(old []metav1.Condition, p mesh.Plan, o role.Outcome) []metav1.Condition {
	var cs []metav1.Condition
	add := func(kind string, is bool, reason, message string) {
		cs = append(cs, role.Condition(old, kind, is, reason, message, o.Now))
	}
	switch {
	case o.Failure() != nil:
		add(role.ConditionSynced, false, reasonFailed, role.Clip(o.Err.Error()))
	case o.Err != nil:
		add(role.ConditionSynced, false, reasonCableFailed, role.Clip(brokenText(p, o)))
	default:
		add(role.ConditionSynced, true, reasonSeen, "the node holds what was planned")
	}
	if len(o.Conflicts) > 0 {
		add(role.ConditionNoConflicts, false, reasonForeignObjects, role.Clip(strings.Join(o.Conflicts, "\n")))
	}
	m := p.Mesh
	if m == nil {
		return cs
	}
	if text := m.Snapshot.Dropping.Text(); text != "" {
		add(role.ConditionPacketsDropped, true, reasonNotAccepted, role.Clip(text))
	}
	if texts := Refusals(m.Cables.Refused, o.Exchange); len(texts) > 0 {
		add(role.ConditionRefused, true, reasonEndpointRefused, role.Clip(strings.Join(texts, "\n")))
	}
	switch collisions, contested := slices.Concat(m.Membership.Collisions,
		m.Accepted.Collisions), m.Membership.Contested; {
	case len(collisions) > 0:
		add(role.ConditionNodesDistinct, false, reasonSameAddress,
			role.Clip(strings.Join(slices.Concat(collisions, contested), "\n")))
	case len(contested) > 0:
		add(role.ConditionNodesDistinct, false, reasonSamePods, role.Clip(strings.Join(contested, "\n")))
	}
	if lost := o.Health.Unreachable(); len(lost) > 0 {
		add(role.ConditionNodesReachable, false, reasonNoAnswer, role.Clip(strings.Join(lost, "\n")))
	}
	if text := refusedForwarding(p, m.Snapshot.Forwarded); text != "" {
		add(role.ConditionPacketsForwarded, false, reasonFirewall, role.Clip(text))
	}
	if kept := m.Cables.KeptReasons; len(kept) > 0 {
		add(role.ConditionCablePoliciesValid, false, reasonKept,
			role.Clip(strings.Join(slices.Sorted(maps.Values(kept)), "\n")))
	}
	if stuck := stuckChanges(p, o); len(stuck) > 0 {
		add(role.ConditionCablesChanged, false, reasonNoAnswer, role.Clip(strings.Join(stuck, "\n")))
	}
	if err := m.Snapshot.PublicIPErr; err != nil {
		add(role.ConditionPublicIP, false, reasonUnusable, role.Clip(err.Error()))
	}
	switch e := o.Exchange; {
	case e == nil:
	case len(e.Errors) > 0:
		reason := reasonFailed
		if e.NotRead {
			reason = submarinerv1.ReasonBrokerNotRead
		}
		add(role.ConditionBrokerSynced, false, reason, role.Clip(strings.Join(e.Errors, "\n")))
	case e.LastSync.IsZero():
		add(role.ConditionBrokerSynced, false, role.ReasonWaiting, "no contact with the broker yet")
	default:
		add(role.ConditionBrokerSynced, true, reasonSynced, "this cluster and the broker hold the same objects")
	}
	if m.Membership.Leaving() && o.Err == nil {
		add(submarinerv1.ConditionClean, true, reasonUninstalled, "the node holds nothing of this agent any more")
	}
	return cs
}

// brokenText describes the cables and detours that the node does not hold, a line for each reason.
func brokenText(p mesh.Plan, o role.Outcome) string {
	clusters := map[string][]string{}
	for i, c := range p.Installed {
		if err := o.Broken[p.OutcomeName(i)]; err != nil {
			to := fmt.Sprintf("%s (%s)", c.Cluster, c.Driver.Name())
			if why := err.Error(); !slices.Contains(clusters[why], to) {
				clusters[why] = append(clusters[why], to)
			}
		}
	}
	var lines []string
	for _, why := range slices.Sorted(maps.Keys(clusters)) {
		lines = append(lines, fmt.Sprintf("no cable to %s: %s", strings.Join(clusters[why], ", "), why))
	}
	if o.Detours != nil {
		lines = append(lines, fmt.Sprintf("no detour through another gateway: %s", o.Detours))
	}
	return strings.Join(lines, "\n")
}

// maxRefused is the maximum number of refused endpoints in a report. A member can announce
// thousands.
const maxRefused = 50

// Refusals describes the objects of other clusters that are not used, and why: the first
// maxRefused, after a line with their number if there are more. e is nil for endpoints alone.
func Refusals(refused []mesh.Refusal, e *role.ExchangeStatus) []string {
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
