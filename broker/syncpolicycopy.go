package broker

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	cablepolicy "subctl/policy"
)

// This file knows what the sync needs of cable policies, and makes no decision.

// nameFlaw says why a policy cannot be shared under its name; empty if it can.
func nameFlaw(name string) string {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Sprintf("%.70q cannot name a policy: use at most 63 lower case letters, digits and '-', with a letter or digit at both ends", name)
	}
	return ""
}

// contentFlaw says why a policy's copy must not be made: a reason of the condition
// Shared and a text; empty if it may.
func contentFlaw(o *v1alpha1.CablePolicies) (reason, text string) {
	if n := policySize(o); n > maxObjectSize {
		return reasonTooLarge, tooLarge(n)
	}
	if err := cablepolicy.Check(o); err != nil {
		const most = 1000 // bytes: the first mistakes will do
		text := strings.ReplaceAll(err.Error(), "\n", "; ")
		if len(text) > most {
			text = strings.ToValidUTF8(text[:most], "") + " …"
		}
		return reasonMistake, text
	}
	return "", ""
}

// policySize is the size of a policy without its labels, which differ from copy to copy.
func policySize(o *v1alpha1.CablePolicies) int { return size(policyCopy(o, "", "", nil)) }

// instead says what counts instead of a policy with a flaw: what was there before, if
// anything was.
func instead(before bool) string {
	if before {
		return "what there was of it before stays in force"
	}
	return "it counts nowhere"
}

// makerOf returns the ID of the cluster that made what is on the broker, or BrokerID.
func makerOf(o client.Object) string {
	if id, ok := o.GetLabels()[submarinerv1.ClusterIDLabel]; ok {
		return id
	}
	return submarinerv1.BrokerID
}

func makerName(o client.Object) string {
	if id := makerOf(o); id != submarinerv1.BrokerID {
		return fmt.Sprintf("cluster %.63s", id)
	}
	return "the broker"
}

// policyCopy returns what of a policy goes to the other side.
func policyCopy(o *v1alpha1.CablePolicies, namespace, name string, labels map[string]string) *v1alpha1.CablePolicies {
	out := &v1alpha1.CablePolicies{
		ObjectMeta:         metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels},
		ConnectionPolicies: o.DeepCopy().ConnectionPolicies,
	}
	for i := range out.ConnectionPolicies {
		r := &out.ConnectionPolicies[i]
		r.CableDriver = cable.Canonical(r.CableDriver)
	}
	return out
}

// policiesOf returns the cable policies among objects, sorted by name.
func policiesOf(objects []client.Object) []*v1alpha1.CablePolicies {
	var out []*v1alpha1.CablePolicies
	for _, o := range objects {
		if p, ok := o.(*v1alpha1.CablePolicies); ok {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *v1alpha1.CablePolicies) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
