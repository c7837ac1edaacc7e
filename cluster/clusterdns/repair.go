package clusterdns

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/kube"
)

const (
	// Annotation, on the Submariner object, is the Kind of the hook that join has made. The agent
	// repairs the kind Corefile.
	Annotation = "submariner.io/cluster-dns"
	// Account is the ServiceAccount of the agent of service discovery.
	Account = "submariner-service-discovery"
	// RepairName is the name of the agent's rights to repair, and of the policy that limits them.
	RepairName = "submariner-cluster-dns"
)

// coreDNSKey is the ConfigMap that the agent repairs.
var coreDNSKey = client.ObjectKey{Namespace: system, Name: "coredns"}

// Repair adds the block to ConfigMap kube-system/coredns if it is lost, or corrects its address,
// and reports whether it has done so. The hook must be of kind Corefile. c must not be a cache:
// Repair needs the rights of RoleFor alone, which are not those to list and to watch.
func Repair(ctx context.Context, c client.Client, address string) (repaired bool, err error) {
	cm := &corev1.ConfigMap{}
	if err := c.Get(ctx, coreDNSKey, cm); err != nil {
		return false, fmt.Errorf("reading the Corefile: %w", err)
	}
	change, err := Lost(cm, address)
	if err != nil || change == (Change{}) {
		return false, err
	}
	if err := c.Update(ctx, change.After, client.FieldOwner(kube.FieldOwner+"-services")); err != nil {
		return false, fmt.Errorf("repairing the Corefile: %w", err)
	}
	return true, nil
}

// Lost returns the change that repairs a ConfigMap with a Corefile; it is empty if there is nothing
// to repair.
func Lost(cm *corev1.ConfigMap, address string) (Change, error) {
	f := Facts{Corefile: cm}
	at, err := f.site()
	var next string
	if err == nil {
		_, next, err = look(f.text(), at.block(address), address)
	}
	if err != nil {
		return Change{}, fmt.Errorf("key %s of ConfigMap %s: %w", corefileKey, coreDNSKey, err)
	}
	if next == f.text() || f.forwards(address) {
		return Change{}, nil
	}
	return dataChange(cm, corefileKey, next), nil
}

// forwards reports whether the Corefile forwards the domain to the address, in whatever form.
func (f *Facts) forwards(address string) bool {
	parsed, err := parse(f.text())
	s, found := parsed.domain()
	return err == nil && found && s.forwards(address)
}

// RoleFor returns the right of the agent to repair a hook, after the admission policy that limits
// it; nothing if the agent does not repair the hook.
func RoleFor(h Hook) []client.Object {
	if h.Kind != Corefile {
		return nil
	}
	meta := metav1.ObjectMeta{Name: RepairName, Namespace: system}
	objs := append(policy(h.Stanza),
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{coreDNSKey.Name},
			Verbs: []string{"get", "update"},
		}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: RepairName},
			Subjects: []rbacv1.Subject{{
				Kind: rbacv1.ServiceAccountKind, Name: Account, Namespace: submarinerv1.OperatorNamespace,
			}},
		})
	for _, o := range objs {
		o.SetLabels(map[string]string{submarinerv1.ManagedByLabel: submarinerv1.ManagedBy})
	}
	return objs
}

const (
	octet       = `(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])`
	addressForm = octet + `(\.` + octet + `){3}`
)

// policy returns the policy that lets the agent write nothing but our block, which has the form of
// stanza with any address: where the block is, or else at the end. A block in the middle of another
// one, or a second one, would keep CoreDNS from starting. The agent never removes it.
func policy(stanza string) []client.Object {
	before, _, _ := strings.Cut(stanza, "forward . ")
	form := regexp.QuoteMeta(before+"forward . ") + addressForm + regexp.QuoteMeta("\n}\n"+end)
	anything := "(?s)" + regexp.QuoteMeta(begin) + ".*?" + regexp.QuoteMeta(end)
	variables := []admissionv1.Variable{
		{Name: "old", Expression: "oldObject.?data['Corefile'].orValue('')"},
		{Name: "next", Expression: "object.?data['Corefile'].orValue('')"},
		{Name: "was", Expression: "variables.old.find(" + strconv.Quote(anything) + ")"},
		{Name: "block", Expression: "variables.next.find(" + strconv.Quote(form) + ")"},
		{Name: "allowed", Expression: "variables.was != '' ? variables.old.replace(variables.was, variables.block) : " +
			`variables.old.endsWith("\n") ? variables.old + variables.block + "\n" : ` +
			`variables.old + "\n" + variables.block`},
	}
	validations := []admissionv1.Validation{
		{
			Expression: "variables.block != '' && variables.next == variables.allowed && " +
				"(variables.was != '' || !variables.old.contains(" + strconv.Quote(begin) + "))",
			Message: "the agent of service discovery may change only its block of the Corefile, as subctl join has " +
				"written it",
		},
		{
			Expression: "object.data.all(k, k == 'Corefile' || k in oldObject.data && " +
				"object.data[k] == oldObject.data[k]) && oldObject.data.all(k, k in object.data)",
			Message: "the agent of service discovery may change only the Corefile",
		},
	}
	for _, field := range []string{
		"?binaryData", "?immutable", "metadata.?labels", "metadata.?annotations", "metadata.?ownerReferences",
		"metadata.?finalizers",
	} {
		validations = append(validations, admissionv1.Validation{
			Expression: fmt.Sprintf("object.%[1]s == oldObject.%[1]s", field),
			Message:    "the agent of service discovery may change only the Corefile",
		})
	}
	return kube.AdmissionPolicy(RepairName, &admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{
			kube.AdmissionRule("", []admissionv1.OperationType{admissionv1.Update}, "configmaps"),
		}},
		MatchConditions: []admissionv1.MatchCondition{{
			Name: "the-agent-in-kube-system",
			Expression: fmt.Sprintf("request.namespace == '%s' && request.userInfo.username == '%s'", system,
				kube.ServiceAccountUser(submarinerv1.OperatorNamespace, Account)),
		}},
		Variables:   variables,
		Validations: validations,
	})
}
