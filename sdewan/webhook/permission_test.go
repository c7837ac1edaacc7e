package webhook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"subctl/internal/kubetest"
	"subctl/sdewan"
)

func described(namespace, name, annotation string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: namespace, Name: name}
	if annotation != "" {
		m.Annotations = map[string]string{sdewan.BucketAnnotation: annotation}
	}
	return m
}

func roleRef(kind, name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}

func subject(kind, namespace, name string) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: kind, Namespace: namespace, Name: name}}
}

// binding is a row of the matrix: roles and bindings, and who may write which types in namespace
// "here".
type binding struct {
	name    string
	user    string
	groups  []string
	objects []client.Object
	allowed func(resource, bucket string) bool
}

func nothing(string, string) bool         { return false }
func everything(string, string) bool      { return true }
func intent(resource, bucket string) bool { return bucket == "app-intent" }

const (
	intentOnly = `{"*": ["app-intent"]}`
	anything   = `{"*": ["*"]}`
)

var bindings = []binding{
	{"no binding", "ann", nil, []client.Object{&rbacv1.Role{ObjectMeta: described("here", "r", anything)}}, nothing},
	{"Role, user", "ann", nil, []client.Object{
		&rbacv1.Role{ObjectMeta: described("here", "r", intentOnly)},
		&rbacv1.RoleBinding{
			ObjectMeta: described("here", "b", ""),
			RoleRef:    roleRef("Role", "r"),
			Subjects:   subject("User", "", "ann"),
		},
	}, intent},
	{"Role, another user", "bob", nil, []client.Object{
		&rbacv1.Role{ObjectMeta: described("here", "r", anything)},
		&rbacv1.RoleBinding{
			ObjectMeta: described("here", "b", ""),
			RoleRef:    roleRef("Role", "r"),
			Subjects:   subject("User", "", "ann"),
		},
	}, nothing},
	{"Role, group", "ann", []string{"dev", "ops"}, []client.Object{
		&rbacv1.Role{ObjectMeta: described("here", "r", intentOnly)},
		&rbacv1.RoleBinding{
			ObjectMeta: described("here", "b", ""),
			RoleRef:    roleRef("Role", "r"),
			Subjects:   subject("Group", "", "ops"),
		},
	}, intent},
	{"a user named like a group", "ops", []string{"dev"}, []client.Object{
		&rbacv1.Role{ObjectMeta: described("here", "r", anything)},
		&rbacv1.RoleBinding{
			ObjectMeta: described("here", "b", ""),
			RoleRef:    roleRef("Role", "r"),
			Subjects:   subject("Group", "", "ops"),
		},
	}, nothing},
	{"a group named like a user", "bob", []string{"ann"}, []client.Object{
		&rbacv1.Role{ObjectMeta: described("here", "r", anything)},
		&rbacv1.RoleBinding{
			ObjectMeta: described("here", "b", ""),
			RoleRef:    roleRef("Role", "r"),
			Subjects:   subject("User", "", "ann"),
		},
	}, nothing},
	{
		"Role, service account",
		"system:serviceaccount:apps:ci",
		[]string{"system:serviceaccounts", "system:serviceaccounts:apps"},
		[]client.Object{
			&rbacv1.Role{ObjectMeta: described("here", "r", intentOnly)},
			&rbacv1.RoleBinding{
				ObjectMeta: described("here", "b", ""),
				RoleRef:    roleRef("Role", "r"),
				Subjects:   subject("ServiceAccount", "apps", "ci"),
			},
		},
		intent,
	},
	{
		"the service account of that name in another namespace",
		"system:serviceaccount:here:ci",
		[]string{"system:serviceaccounts"},
		[]client.Object{
			&rbacv1.Role{ObjectMeta: described("here", "r", anything)},
			&rbacv1.RoleBinding{
				ObjectMeta: described("here", "b", ""),
				RoleRef:    roleRef("Role", "r"),
				Subjects:   subject("ServiceAccount", "apps", "ci"),
			},
		},
		nothing,
	},
	{"a user named like a service account", "ci", nil, []client.Object{
		&rbacv1.Role{ObjectMeta: described("here", "r", anything)},
		&rbacv1.RoleBinding{
			ObjectMeta: described("here", "b", ""),
			RoleRef:    roleRef("Role", "r"),
			Subjects:   subject("ServiceAccount", "apps", "ci"),
		},
	}, nothing},
	{
		"a new service account, by the group of its namespace",
		"system:serviceaccount:apps:fresh",
		[]string{"system:serviceaccounts", "system:serviceaccounts:apps"},
		[]client.Object{
			&rbacv1.Role{ObjectMeta: described("here", "r", intentOnly)},
			&rbacv1.RoleBinding{
				ObjectMeta: described("here", "b", ""),
				RoleRef:    roleRef("Role", "r"),
				Subjects:   subject("Group", "", "system:serviceaccounts:apps"),
			},
		},
		intent,
	},
	{"Role of another namespace", "ann", nil, []client.Object{
		&rbacv1.Role{ObjectMeta: described("there", "r", anything)},
		&rbacv1.RoleBinding{
			ObjectMeta: described("there", "b", ""),
			RoleRef:    roleRef("Role", "r"),
			Subjects:   subject("User", "", "ann"),
		},
		&rbacv1.RoleBinding{
			ObjectMeta: described("here", "b", ""),
			RoleRef:    roleRef("Role", "r"),
			Subjects:   subject("User", "", "ann"),
		},
	}, nothing},
	{"RoleBinding to a ClusterRole", "ann", nil, []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: described("", "r", intentOnly)},
		&rbacv1.RoleBinding{
			ObjectMeta: described("here", "b", ""),
			RoleRef:    roleRef("ClusterRole", "r"),
			Subjects:   subject("User", "", "ann"),
		},
	}, intent},
	{"RoleBinding to a ClusterRole, elsewhere", "ann", nil, []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: described("", "r", anything)},
		&rbacv1.RoleBinding{
			ObjectMeta: described("there", "b", ""),
			RoleRef:    roleRef("ClusterRole", "r"),
			Subjects:   subject("User", "", "ann"),
		},
	}, nothing},
	{"RoleBinding to a Role with the name of a ClusterRole", "ann", nil, []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: described("", "r", anything)},
		&rbacv1.Role{ObjectMeta: described("here", "r", intentOnly)},
		&rbacv1.RoleBinding{
			ObjectMeta: described("here", "b", ""),
			RoleRef:    roleRef("Role", "r"),
			Subjects:   subject("User", "", "ann"),
		},
	}, intent},
	{"ClusterRoleBinding", "ann", nil, []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: described("", "r", intentOnly)},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: described("", "b", ""),
			RoleRef:    roleRef("ClusterRole", "r"),
			Subjects:   subject("User", "", "ann"),
		},
	}, intent},
	{"ClusterRoleBinding, all authenticated users", "ann", []string{"system:authenticated"}, []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: described("", "r", intentOnly)},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: described("", "b", ""),
			RoleRef:    roleRef("ClusterRole", "r"),
			Subjects:   subject("Group", "", "system:authenticated"),
		},
	}, intent},
	{"an aggregated ClusterRole, in a circle", "ann", nil, []client.Object{
		&rbacv1.ClusterRole{
			ObjectMeta: described("", "edit", ""),
			AggregationRule: &rbacv1.AggregationRule{
				ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"to": "edit"}}},
			},
		},
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{
				Name:        "part",
				Labels:      map[string]string{"to": "edit"},
				Annotations: map[string]string{sdewan.BucketAnnotation: intentOnly},
			},
			AggregationRule: &rbacv1.AggregationRule{
				ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"to": "edit"}}},
			},
		},
		&rbacv1.ClusterRole{ObjectMeta: described("", "other", anything)},
		&rbacv1.RoleBinding{
			ObjectMeta: described("here", "b", ""),
			RoleRef:    roleRef("ClusterRole", "edit"),
			Subjects:   subject("User", "", "ann"),
		},
	}, intent},
	{"all rights by ClusterRoleBinding", "ann", nil, []client.Object{
		&rbacv1.ClusterRole{
			ObjectMeta: described("", "cluster-admin", ""),
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: described("", "b", ""),
			RoleRef:    roleRef("ClusterRole", "cluster-admin"),
			Subjects:   subject("User", "", "ann"),
		},
	}, everything},
	{"all rights in a namespace are not all rights", "ann", nil, []client.Object{
		&rbacv1.ClusterRole{
			ObjectMeta: described("", "cluster-admin", ""),
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: described("here", "b", ""),
			RoleRef:    roleRef("ClusterRole", "cluster-admin"),
			Subjects:   subject("User", "", "ann"),
		},
	}, nothing},
	{"system:masters", "ann", []string{"system:masters"}, nil, everything},
	{"the controller", "system:serviceaccount:system:controller", nil, nil, everything},
	{"an account with the name of the controller", "system:serviceaccount:here:controller", nil, nil, nothing},
	{"the deletion of a namespace", "system:serviceaccount:kube-system:namespace-controller", nil, nil, everything},
	{"no JSON", "ann", nil, []client.Object{
		&rbacv1.Role{ObjectMeta: described("here", "r", `{"*": "*"}`)},
		&rbacv1.Role{ObjectMeta: described("here", "s", `{"*": ["app-intent"]`)},
		&rbacv1.RoleBinding{
			ObjectMeta: described("here", "b", ""),
			RoleRef:    roleRef("Role", "r"),
			Subjects:   subject("User", "", "ann"),
		},
		&rbacv1.RoleBinding{
			ObjectMeta: described("here", "c", ""),
			RoleRef:    roleRef("Role", "s"),
			Subjects:   subject("User", "", "ann"),
		},
	}, nothing},
	{"no JSON beside JSON", "ann", nil, []client.Object{
		&rbacv1.Role{ObjectMeta: described("here", "r", `nonsense`)},
		&rbacv1.Role{ObjectMeta: described("here", "s", intentOnly)},
		&rbacv1.RoleBinding{
			ObjectMeta: described("here", "b", ""),
			RoleRef:    roleRef("Role", "r"),
			Subjects:   subject("User", "", "ann"),
		},
		&rbacv1.RoleBinding{
			ObjectMeta: described("here", "c", ""),
			RoleRef:    roleRef("Role", "s"),
			Subjects:   subject("User", "", "ann"),
		},
		&rbacv1.RoleBinding{
			ObjectMeta: described("here", "d", ""),
			RoleRef:    roleRef("Role", "gone"),
			Subjects:   subject("User", "", "ann"),
		},
	}, intent},
	{"upstream's example", "ann", nil, []client.Object{
		&rbacv1.ClusterRole{
			ObjectMeta: described("", "r",
				`{ "mwan3rules": ["app-intent", "k8s-service"], "mwan3policies": ["*"], "firewall*": ["app-intent"] }`),
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: described("", "b", ""),
			RoleRef:    roleRef("ClusterRole", "r"),
			Subjects:   subject("User", "", "ann"),
		},
	}, func(resource, bucket string) bool {
		return resource == "mwan3policies" ||
			bucket == "app-intent" && (resource == "mwan3rules" || strings.HasPrefix(resource, "firewall")) ||
			bucket == "k8s-service" && resource == "mwan3rules"
	}},
	{"unlabelled rules only", "ann", nil, []client.Object{
		&rbacv1.Role{ObjectMeta: described("here", "r", `{"*": [""]}`)},
		&rbacv1.RoleBinding{
			ObjectMeta: described("here", "b", ""),
			RoleRef:    roleRef("Role", "r"),
			Subjects:   subject("User", "", "ann"),
		},
	}, func(_, bucket string) bool { return bucket == "" }},
}

var buckets = []string{"", "basic", "app-intent", "k8s-service"}

// Every kind, verb, pair of types (before and after), and all those bindings that few people have:
// with requests as an API server makes them. Requests of real users are in matrix_test.go.
func TestPermissionMatrix(t *testing.T) {
	scheme := kubetest.Scheme(t)
	cases := 0
	for _, b := range bindings {
		p := &permission{
			reader: reader(scheme, b.objects...),
			exempt: exempt(Options{Namespace: "system", Account: "controller"}),
		}
		for _, k := range sdewan.Kinds() {
			for _, subresource := range []string{"", "status"} {
				for _, was := range buckets {
					require.Equal(t, b.allowed(k.Resource, was), ask(t, p, b, k, subresource, "CREATE", nil, &was),
						"%s: create %s %q", b.name, k.Resource, was)
					require.Equal(t, b.allowed(k.Resource, was), ask(t, p, b, k, subresource, "DELETE", &was, nil),
						"%s: delete %s %q", b.name, k.Resource, was)
					for _, is := range buckets {
						want := b.allowed(k.Resource, was) && b.allowed(k.Resource, is)
						require.Equal(t, want, ask(t, p, b, k, subresource, "UPDATE", &was, &is),
							"%s: update %s from %q to %q", b.name, k.Resource, was, is)
						cases++
					}
					cases += 2
				}
			}
		}
	}
	t.Logf("%d cases", cases)
}

func reader(scheme *runtime.Scheme, objects ...client.Object) client.Reader {
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&rbacv1.RoleBinding{}, subjectIndex, func(o client.Object) []string {
			return subjectKeys(o.(*rbacv1.RoleBinding).Subjects, o.GetNamespace())
		}).
		WithIndex(&rbacv1.ClusterRoleBinding{}, subjectIndex, func(o client.Object) []string {
			return subjectKeys(o.(*rbacv1.ClusterRoleBinding).Subjects, "")
		}).Build()
}

// ask asks the webhook about a rule with a label, or without for "".
func ask(
	t testing.TB,
	p *permission,
	b binding,
	k sdewan.Kind,
	subresource string,
	operation admissionv1.Operation,
	was, is *string,
) bool {
	t.Helper()
	raw := func(bucket *string) runtime.RawExtension {
		if bucket == nil {
			return runtime.RawExtension{}
		}
		labels := ""
		if *bucket != "" {
			labels = fmt.Sprintf(`"%s":%q`, sdewan.BucketLabel, *bucket)
		}
		return runtime.RawExtension{
			Raw: fmt.Appendf(nil, `{"metadata":{"name":"x","namespace":"here","labels":{%s}}}`, labels),
		}
	}
	response := p.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: operation, Namespace: "here", SubResource: subresource,
		Resource: metav1.GroupVersionResource{Group: k.GVK.Group, Version: k.GVK.Version, Resource: k.Resource},
		UserInfo: authenticationv1.UserInfo{Username: b.user, Groups: b.groups},
		Object:   raw(is), OldObject: raw(was),
	}})
	if !response.Allowed {
		require.EqualValues(t, 403, response.Result.Code, "%v", response.Result)
		require.Contains(t, response.Result.Message, b.user+" may not change "+k.Resource)
	}
	return response.Allowed
}

// Requests that no API server sends are refused, and break nothing.
func TestHostilePermissionRequests(t *testing.T) {
	p := &permission{reader: reader(kubetest.Scheme(t))}
	k := sdewan.Kinds()[0]
	resource := metav1.GroupVersionResource{Group: k.GVK.Group, Version: k.GVK.Version, Resource: k.Resource}
	for name, r := range map[string]admissionv1.AdmissionRequest{
		"empty": {},
		"another kind": {
			Resource: metav1.GroupVersionResource{Resource: "pods"},
			Object:   runtime.RawExtension{Raw: []byte(`{}`)},
		},
		"no object": {Resource: resource},
		"no JSON":   {Resource: resource, Object: runtime.RawExtension{Raw: []byte(`{`)}},
		"a list":    {Resource: resource, Object: runtime.RawExtension{Raw: []byte(`[]`)}},
		"labels of lists": {
			Resource: resource,
			Object:   runtime.RawExtension{Raw: []byte(`{"metadata":{"labels":{"sdewan-bucket-type":["*"]}}}`)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.False(t, p.Handle(t.Context(), admission.Request{AdmissionRequest: r}).Allowed)
			d := &dependencies{cached: p.reader, live: p.reader}
			require.False(t, d.Handle(t.Context(), admission.Request{AdmissionRequest: r}).Allowed)
			c := &oneCNF{
				live:    p.reader,
				decoder: admission.NewDecoder(kubetest.Scheme(t)),
				pending: map[string]pendingCNF{},
			}
			require.NotPanics(t, func() { c.Handle(t.Context(), admission.Request{AdmissionRequest: r}) })
		})
	}
}

// An annotation that takes long to read has no effect.
func TestHostileAnnotationSize(t *testing.T) {
	long := `{"*": ["*"` + strings.Repeat(`, "x"`, 50000) + `]}`
	lists, err := parse(map[string]string{sdewan.BucketAnnotation: long})
	require.ErrorContains(t, err, "has no effect: at most 8192 are possible")
	require.Empty(t, lists)
}

// A ServiceAccount without a namespace is in the namespace of the binding, also after one that has
// another namespace.
func TestSubjectKeys(t *testing.T) {
	require.Equal(
		t,
		[]string{"User/system:serviceaccount:ops:a", "User/system:serviceaccount:branch:b", "Group/b"},
		subjectKeys([]rbacv1.Subject{
			{
				Kind:      rbacv1.ServiceAccountKind,
				Name:      "a",
				Namespace: "ops",
			}, {Kind: rbacv1.ServiceAccountKind, Name: "b"}, {Kind: rbacv1.GroupKind, Name: "b"},
		}, "branch"),
	)
}

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true},
		{"", "a", false},
		{"*", "", true},
		{"*", "abc", true},
		{"a*", "abc", true},
		{"a*", "ba", false},
		{"*c", "abc", true},
		{"a*c", "abbc", true},
		{"a*b*c", "axxbyyc", true},
		{"a*b*c", "axxcyyb", false},
		{"?", "a", true},
		{"?", "", false},
		{"a?c", "abc", true},
		{"firewall*", "firewallzones", true},
		{"basic", "basics", false},
		{"BASIC", "basic", false},
		{"[a-z]*", "abc", false},
		{strings.Repeat("*a", 200), strings.Repeat("a", 300) + "b", false},
	} {
		require.Equal(t, test.want, match(test.pattern, test.text), "%q %q", test.pattern, test.text)
	}
}

func FuzzAnnotation(f *testing.F) {
	f.Add(`{"mwan3rules": ["app-intent"], "firewall*": ["*"]}`, "mwan3rules", "basic")
	f.Add(`{"*": ["?"]}`, "x", "y")
	f.Fuzz(func(t *testing.T, annotation, resource, bucket string) {
		lists, err := parse(map[string]string{sdewan.BucketAnnotation: annotation})
		if err != nil && len(lists) > 0 {
			t.Error("an annotation with a mistake has no effect")
		}
		allowed := allows(lists, resource, bucket)
		var plain map[string][]string
		if json.Unmarshal([]byte(annotation), &plain) == nil && slices.Contains(plain[resource], bucket) && !allowed &&
			!strings.ContainsAny(resource+bucket, "*?") {
			t.Error("what is listed is allowed")
		}
	})
}
