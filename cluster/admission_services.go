package cluster

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/trust"
	"subctl/internal/kube"
	"subctl/services"
)

// derivedName matches the names of derived Services: see services.DerivedName.
const derivedName = "^derived-[0-9a-v]{10}$"

// servicesPolicy returns the policy of the agent of service discovery, which may write Services and
// EndpointSlices in all namespaces: only those that stand for imported Services, and of those
// nothing with which it could redirect other traffic, or make other software act. Nothing is
// imported into the namespaces of Kubernetes, OpenShift and subctl, except those that the settings
// named when the cluster joined.
func servicesPolicy(sub *v1alpha1.Submariner) []client.Object {
	const mcs = mcsv1alpha1.GroupName
	objs := kube.AdmissionPolicy(ServiceDiscoveryName, &admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{
			kube.AdmissionRule("", kube.AdmissionWrites(), "services", "services/status"),
			kube.AdmissionRule(discoveryv1.GroupName, kube.AdmissionWrites(), "endpointslices"),
			kube.AdmissionRule(mcs, kube.AdmissionWrites(), "serviceimports", "serviceimports/status",
				"serviceexports", "serviceexports/status"),
			kube.AdmissionRule(submarinerv1.GroupVersion.Group, kube.AdmissionWrites(), "exportedservices"),
			kube.AdmissionRule("coordination.k8s.io", kube.AdmissionWrites(), "leases"),
		}},
		MatchConditions: []admissionv1.MatchCondition{{
			Name: "the-agent",
			Expression: fmt.Sprintf("request.userInfo.username == '%s'",
				kube.ServiceAccountUser(Namespace, ServiceDiscoveryName)),
		}},
		Variables: []admissionv1.Variable{
			{Name: "resource", Expression: "request.resource.resource"},
			{Name: "name", Expression: "object != null ? object.metadata.name : oldObject.metadata.name"},
		},
		Validations: slices.Concat([]admissionv1.Validation{
			{
				Expression: fmt.Sprintf("variables.resource != 'leases' || variables.name == '%s'",
					submarinerv1.ServicesLease),
				Message: "the agent of service discovery may write no Lease but " + submarinerv1.ServicesLease,
			},
			{
				Expression: "!(variables.resource in ['services', 'endpointslices', 'serviceimports']) || object == " +
					"null || " +
					importsInto(sub),
				MessageExpression: "'nothing is imported into namespace ' + request.namespace + ', as the settings of " +
					"service discovery do not name it'",
			},
		}, servicesValidations(), exportsValidations(sub.Spec.ClusterID)),
	})
	for _, o := range objs {
		o.SetLabels(ours(ServiceDiscoveryName))
	}
	return objs
}

// importsInto returns a CEL expression, which is true for namespaces into which Services may be
// imported.
func importsInto(sub *v1alpha1.Submariner) string {
	var reserved []string
	for _, prefix := range []string{"kube-", "openshift-", "submariner-"} {
		reserved = append(reserved, fmt.Sprintf("request.namespace.startsWith('%s')", prefix))
	}
	out := []string{"!(" + strings.Join(reserved, " || ") + ")"}
	if s := sub.Spec.ServiceDiscovery; s != nil {
		for _, pattern := range s.NamedNamespaces() {
			if !trust.IsReserved(pattern) {
				continue
			}
			if prefix, is := strings.CutSuffix(pattern, "*"); is {
				out = append(out, fmt.Sprintf("request.namespace.startsWith('%s')", celText(prefix)))
			} else {
				out = append(out, fmt.Sprintf("request.namespace == '%s'", celText(pattern)))
			}
		}
	}
	return "(" + strings.Join(out, " || ") + ")"
}

// celText returns a text without the characters that end or escape a string of CEL: no name of a
// namespace has them.
func celText(text string) string {
	return strings.NewReplacer(`'`, "", `\`, "", "\n", "").Replace(text)
}

// servicesValidations restrict what stands for imported Services.
func servicesValidations() []admissionv1.Validation {
	label := func(object, key, value string) string {
		return fmt.Sprintf("%s.metadata.?labels[?'%s'] == optional.of('%s')", object, key, value)
	}
	// Both as it is, and as it was.
	both := func(resources, of string) admissionv1.Validation {
		is := strings.ReplaceAll(of, "OBJECT", "object")
		was := strings.ReplaceAll(of, "OBJECT", "oldObject")
		return admissionv1.Validation{Expression: fmt.Sprintf(
			"!(variables.resource in [%s]) || (object == null || %s) && (oldObject == null || %s)", resources, is, was)}
	}
	const owner = "OBJECT.metadata.?ownerReferences.orValue([])"
	ours := label("OBJECT", submarinerv1.ManagedByLabel, submarinerv1.ManagedBy)
	derived := both("'services'", "("+strings.Join([]string{
		ours, fmt.Sprintf("OBJECT.metadata.name.matches('%s')", derivedName),
		fmt.Sprintf("OBJECT.metadata.?labels[?'%s'].hasValue()", mcsv1alpha1.LabelServiceName),
		fmt.Sprintf("%[1]s.size() == 1 && %[1]s[0].kind == '%[2]s'", owner, mcsv1alpha1.ServiceImportKindName),
	}, " && ")+")")
	derived.Message = "the agent of service discovery may write no other Services than those derived from a " +
		"ServiceImport of its own"
	slice := both("'endpointslices'", label("OBJECT", discoveryv1.LabelManagedBy, services.ManagedBy))
	slice.Message = "the agent of service discovery may write no other EndpointSlices than its own"
	imported := both("'serviceimports'", ours)
	imported.Message = "the agent of service discovery may write no other ServiceImports than its own"
	return []admissionv1.Validation{derived, slice, imported, {
		Expression: "variables.resource != 'services' || object == null || object.spec.type == 'ClusterIP' && " +
			"object.spec.?clusterIP.orValue('') != 'None' && object.spec.?selector.orValue({}).size() == 0 && " +
			"object.spec.?externalIPs.orValue([]).size() == 0 && object.spec.?externalName.orValue('') == ''",
		Message: "a derived Service is of type ClusterIP, and has an address, no selector and no external addresses",
	}, {
		Expression: "variables.resource != 'services' || object == null || (" +
			newKeys("labels", submarinerv1.ManagedByLabel, mcsv1alpha1.LabelServiceName) + " && " +
			newKeys("annotations", corev1.AnnotationTopologyMode) + ")",
		Message: "the agent of service discovery may set no other labels and annotations of a derived Service than " +
			"its own",
	}, {
		Expression: "variables.resource != 'endpointslices' || object == null || " +
			"object.endpoints.all(e, !has(e.nodeName) && !has(e.targetRef))",
		Message: "an endpoint of an imported Service is on none of the nodes",
	}, {
		Expression: "!(variables.resource in ['services', 'endpointslices', 'serviceimports']) || object == null || " +
			"object.metadata.?finalizers.orValue([]).all(f, " +
			"oldObject != null && f in oldObject.metadata.?finalizers.orValue([]))",
		Message: "the agent of service discovery may keep nothing from being deleted",
	}, {
		// Other software than kube-proxy reads those of headless Services, too: the cluster's DNS
		// does.
		Expression: fmt.Sprintf("variables.resource != 'endpointslices' || object == null || "+
			"object.metadata.?labels[?'%s'].orValue('').matches('%s')", discoveryv1.LabelServiceName, derivedName),
		Message: "an EndpointSlice of an imported Service belongs to a derived Service",
	}}
}

// newKeys returns a CEL expression, which is true if labels or annotations have no other new
// entries than those with some keys.
func newKeys(field string, keys ...string) string {
	is := fmt.Sprintf("object.metadata.?%s.orValue({})", field)
	was := fmt.Sprintf("oldObject.metadata.?%s.orValue({})", field)
	return fmt.Sprintf("%[1]s.all(k, k in ['%[2]s'] || oldObject != null && %[3]s[?k] == %[1]s[?k])",
		is, strings.Join(keys, "', '"), was)
}

// exportsValidations restrict what the agent writes of exports: the conditions of ServiceExports,
// and the pages of its own cluster.
func exportsValidations(clusterID string) []admissionv1.Validation {
	conditions := func(object string) string {
		return fmt.Sprintf("%s.?status.?conditions.orValue([]).filter(c, !(c.type in ['%s', '%s', '%s', '%s']))",
			object, mcsv1alpha1.ServiceExportConditionValid, mcsv1alpha1.ServiceExportConditionReady,
			services.ConditionPublished, mcsv1alpha1.ServiceExportConditionConflict)
	}
	page := func(object string) string {
		return fmt.Sprintf("(%[1]s == null || %[1]s.spec.clusterID == '%[2]s' && "+
			"%[1]s.metadata.name.startsWith('%[3]s') && "+
			"!%[1]s.metadata.?labels[?'%[4]s'].hasValue())", object, celText(clusterID),
			celText(strings.TrimSuffix(v1alpha1.ExportedServicesName(clusterID, 0), "0")), submarinerv1.ClusterIDLabel)
	}
	return []admissionv1.Validation{{
		Expression: "variables.resource != 'serviceexports' || request.operation == 'UPDATE' && " +
			conditions("object") + " == " + conditions("oldObject"),
		Message: "the agent of service discovery may change nothing of a ServiceExport but its conditions",
	}, {
		Expression: "variables.resource != 'exportedservices' || " + page("object") + " && " + page("oldObject"),
		Message: "the agent of service discovery may write no other pages of exported Services than those of its " +
			"own cluster",
	}}
}
