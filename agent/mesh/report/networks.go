package report

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/prefix"
)

// ConditionNetworksJoined is a condition of the speaker's Gateway. It is False if the cluster has
// networks with which it has not joined. A grant lists the networks of its cluster, and only the
// administrator's key, which no agent has, signs another: so the agent does not announce them, but
// reports what to run.
const ConditionNetworksJoined = "NetworksJoined"

// reasonNewNetwork is its reason.
const reasonNewNetwork = "NewNetwork"

// ownNetworks describes the pod networks, or the Service networks, of a cluster.
type ownNetworks struct {
	what, flag, field string
	text              string // of Submariner.spec
	joined            []netip.Prefix
	found             role.FoundNetworks
}

// missing returns the networks that were found and with which the cluster has not joined.
func (n ownNetworks) missing() []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(n.found.CIDRs),
		func(p netip.Prefix) bool { return prefix.CoverTogether(n.joined, p) })
}

// networksCondition returns ConditionNetworksJoined if it is False.
func networksCondition(s role.Snapshot, m members.Membership, was []metav1.Condition,
	now time.Time,
) []metav1.Condition {
	sub := m.Submariner
	if !s.Standing.Speaker || sub.Spec.ClusterCIDR == "" || sub.Spec.ServiceCIDR == "" {
		return nil
	}
	pods := s.FoundPods
	if len(pods.CIDRs) == 0 {
		pods = laterRanges(s, m)
	}
	var texts, flags []string
	for _, n := range []ownNetworks{
		{"pod", "clustercidr", v1alpha1.ClusterCIDRField, sub.Spec.ClusterCIDR, m.Own.Pods, pods},
		{
			"Service", "servicecidr", v1alpha1.ServiceCIDRField, sub.Spec.ServiceCIDR, m.Own.Services,
			s.FoundServices,
		},
	} {
		missing := n.missing()
		if len(missing) == 0 {
			continue
		}
		texts = append(texts, fmt.Sprintf("the %s network %s (%s)", n.what, prefix.Format(missing), n.found.From))
		if !sub.Discovered(n.field) {
			flags = append(flags, fmt.Sprintf(" --%s %s,%s", n.flag, n.text, prefix.Format(missing)))
		}
	}
	if len(texts) == 0 {
		return nil
	}
	text := fmt.Sprintf("this cluster has %s, with which it has not joined, so that other clusters do not reach it: "+
		"run \"subctl join JOIN-FILE%s\", with the file of the broker",
		strings.Join(texts, ", and "), strings.Join(flags, ""))
	return []metav1.Condition{role.Condition(was, ConditionNetworksJoined, false, reasonNewNetwork, role.Clip(text),
		now)}
}

// laterRanges returns the podCIDRs of nodes outside the pod networks. They do not count if no
// node's is inside: then the network plugin does not use them.
func laterRanges(s role.Snapshot, m members.Membership) role.FoundNetworks {
	var out role.FoundNetworks
	used := false
	for _, n := range role.List[*corev1.Node](s) {
		p := members.PodCIDR(m.Submariner, n)
		switch {
		case !p.IsValid():
		case prefix.CoverTogether(m.Own.Pods, p):
			used = true
		default:
			out.CIDRs = append(out.CIDRs, p)
		}
	}
	if !used {
		return role.FoundNetworks{}
	}
	out.From = "podCIDR of nodes"
	return out
}
