package cmd

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster"
	"subctl/internal/look"
	"subctl/internal/words"
)

// globalAddress is the global addresses of an object, and whose they are; its JSON is a promise.
type globalAddress struct {
	Addresses []string `json:"addresses"` // sorted, without gaps
	// Owner describes whose they are: Service default/web. OwnerKind is Service, Pod, Namespace or
	// Cluster: the addresses of a Namespace or a Cluster are the source of its pods.
	Owner          string `json:"owner"`
	OwnerKind      string `json:"ownerKind"`
	OwnerNamespace string `json:"ownerNamespace"`
	OwnerName      string `json:"ownerName"` // empty: the cluster itself
	// Kind, Namespace and Name are those of the object whose status has the addresses.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	State     string `json:"state"`
	Message   string `json:"message"` // of the condition Allocated
	// Programmed reports whether all active gateways translate the addresses; null: unknown, or
	// there are no addresses. Unprogrammed are the gateways that do not.
	Programmed   *bool    `json:"programmed"`
	Unprogrammed []string `json:"unprogrammed"`
	// Unused describes why pods do not always have the addresses of a GlobalEgressIP as their
	// source; empty if they do.
	Unused string `json:"unused"`

	since   time.Time // the object was created
	version string    // its resource version
}

// The states of objects that request addresses.
const (
	stateAllocated = "allocated"
	stateWaiting   = "waiting" // for others to free addresses
	stateRefused   = "refused" // it has a mistake
	statePending   = "pending" // the agent has not seen it
)

// unusedReasons are the reasons of the condition Selects that are no business of those who choose
// the pods.
var unusedReasons = []string{submarinerv1.ReasonFewAddresses, submarinerv1.ReasonNoRoom, submarinerv1.ReasonOthersFirst}

// program fills in which gateways translate the addresses.
func (a *globalAddress) program(s look.Site) {
	if len(a.Addresses) == 0 {
		return
	}
	missing, known := s.Unprogrammed(a.version, func(v submarinerv1.ProgrammedVersions) string {
		switch a.Kind {
		case "ClusterGlobalEgressIP":
			return v.ClusterGlobalEgressIPs
		case "GlobalEgressIP":
			return v.GlobalEgressIPs
		}
		return v.GlobalIngressIPs
	})
	if known {
		a.Programmed = new(len(missing) == 0)
		a.Unprogrammed = append(a.Unprogrammed, missing...)
	}
}

// stateText returns the state for a table.
func (a globalAddress) stateText() string {
	switch {
	case a.State != stateAllocated || a.Programmed == nil:
		return a.State
	case *a.Programmed:
		return "programmed"
	}
	return "allocated, not programmed by " + words.List(a.Unprogrammed)
}

// text returns the addresses for a table.
func (a globalAddress) text() string {
	switch n := len(a.Addresses); n {
	case 0:
		return ""
	case 1:
		return a.Addresses[0]
	default:
		return a.Addresses[0] + "-" + a.Addresses[n-1]
	}
}

// object names the object.
func (a globalAddress) object() string {
	return a.Kind + " " + strings.TrimPrefix(a.Namespace+"/"+a.Name, "/")
}

// ill reports whether the object has no addresses and should.
func (a globalAddress) ill(now time.Time) bool {
	return a.State == stateWaiting || a.State == stateRefused ||
		a.State == statePending && now.Sub(a.since) > allocateTime
}

// globalAddresses returns the addresses of all objects, sorted by address, those without one first.
func globalAddresses(all *look.GlobalAddresses) []globalAddress {
	out := []globalAddress{}
	for i := range all.ClusterEgress {
		o := &all.ClusterEgress[i]
		a := newGlobalAddress("ClusterGlobalEgressIP", o, o.Status.AllocatedIPs, o.Status.Conditions)
		a.Owner = "pods without other addresses"
		a.OwnerKind = "Cluster"
		if node, ok := strings.CutSuffix(o.Name, submarinerv1.GatewayEgressSuffix); ok {
			a.Owner += ", through gateway " + node
		}
		out = append(out, a)
	}
	for i := range all.Egress {
		o := &all.Egress[i]
		a := newGlobalAddress("GlobalEgressIP", o, o.Status.AllocatedIPs, o.Status.Conditions)
		a.Owner = "pods of namespace " + o.Namespace
		a.OwnerKind = "Namespace"
		a.OwnerName = o.Namespace
		c := meta.FindStatusCondition(o.Status.Conditions, submarinerv1.ConditionSelects)
		if c != nil && c.Status == metav1.ConditionFalse && slices.Contains(unusedReasons, c.Reason) {
			a.Unused = c.Message
		}
		if o.Spec.PodSelector != nil {
			a.Owner = fmt.Sprintf("pods %s of namespace %s", metav1.FormatLabelSelector(o.Spec.PodSelector),
				o.Namespace)
		}
		out = append(out, a)
	}
	for i := range all.Ingress {
		out = append(out, ingressAddress(&all.Ingress[i]))
	}
	slices.SortStableFunc(out, func(a, b globalAddress) int { return a.first().Compare(b.first()) })
	return out
}

// first returns the first address; the zero Addr, which sorts before all others, if there is none.
func (a globalAddress) first() (ip netip.Addr) {
	if len(a.Addresses) > 0 {
		ip, _ = netip.ParseAddr(a.Addresses[0])
	}
	return ip
}

func ingressAddress(o *submarinerv1.GlobalIngressIP) globalAddress {
	var held []string
	if o.Status.AllocatedIP != "" {
		held = []string{o.Status.AllocatedIP}
	}
	a := newGlobalAddress("GlobalIngressIP", o, held, o.Status.Conditions)
	a.OwnerKind = "Service"
	a.OwnerNamespace = o.Namespace
	switch {
	case o.Spec.Target == submarinerv1.TargetHeadlessServicePod && o.Spec.PodRef != nil:
		a.OwnerKind = "Pod"
		a.OwnerName = o.Spec.PodRef.Name
	case o.Spec.ServiceRef != nil:
		a.OwnerName = o.Spec.ServiceRef.Name
	}
	a.Owner = fmt.Sprintf("%s %s/%s", a.OwnerKind, a.OwnerNamespace, a.OwnerName)
	if o.Spec.Target == submarinerv1.TargetHeadlessServiceEndpoints {
		a.Owner = "endpoint " + o.Annotations[submarinerv1.HeadlessEndpointAnnotation] + " of " + a.Owner
	}
	return a
}

// newGlobalAddress returns the addresses of an object, and the state that its conditions tell.
func newGlobalAddress(kind string, o client.Object, held []string, conditions []metav1.Condition) globalAddress {
	a := globalAddress{
		Addresses: append([]string{}, held...), Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(),
		State: stateRefused, Unprogrammed: []string{},
		since: o.GetCreationTimestamp().Time, version: o.GetResourceVersion(),
	}
	c := meta.FindStatusCondition(conditions, submarinerv1.ConditionAllocated)
	switch {
	case c == nil:
		a.State = statePending
		a.Message = "the globalnet agent has not seen it: see kubectl -n " + cluster.Namespace + " get deployment " +
			cluster.GlobalnetName
		return a
	case c.Status == metav1.ConditionTrue,
		c.Reason == submarinerv1.ReasonNothingRequested && kind != "ClusterGlobalEgressIP":
		a.State = stateAllocated
	case c.Reason == submarinerv1.ReasonPoolExhausted:
		a.State = stateWaiting
	}
	a.Message = c.Message
	return a
}
