package report

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
)

// announceShare adds to the parameters that a gateway announces its share, where it is not the
// default, and whether there are others.
func announceShare(o mesh.Offer, config map[string]string) {
	if w := o.Local.Weight; w != 0 && w != cable.DefaultWeight {
		config[submarinerv1.BackendWeight] = strconv.Itoa(w)
	}
	if d := o.Local.Drain; d != cable.InService {
		config[submarinerv1.BackendDrain] = d.String()
	}
	config[submarinerv1.BackendSiblings] = strconv.FormatBool(o.Local.Siblings)
}

// reportShare adds the gateway's share to its report.
func reportShare(o mesh.Offer, s role.Snapshot, g *submarinerv1.Gateway) {
	g.Status.Weight = new(cable.DefaultWeight)
	if n := role.Find[*corev1.Node](s, s.Node); n != nil {
		asked, _ := members.ReadShare(n) // shareCondition reports the mistake
		g.Status.Weight = &asked.Weight
	}
	if leaving := !o.DrainingSince.IsZero(); leaving {
		g.Status.Drain = o.Local.Drain.String()
		at := metav1.NewTime(o.DrainingSince.Truncate(time.Second))
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
func shareCondition(s role.Snapshot, was []metav1.Condition, now time.Time) (out []metav1.Condition) {
	n := role.Find[*corev1.Node](s, s.Node)
	if n == nil {
		return nil
	}
	if _, err := members.ReadShare(n); err != nil {
		out = append(out, role.Condition(was, ConditionShare, false, reasonInvalid, role.Clip(err.Error()), now))
	}
	return out
}
