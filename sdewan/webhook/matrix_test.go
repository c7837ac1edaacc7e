package webhook

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/sdewan"
)

// This file has the matrix kind × verb × type × binding, as a real API server answers it to users
// and groups of certificates, and to accounts of tokens. Requests are dry runs, which pass all of
// admission and leave all objects as they are. Stranger roles and bindings are in
// permission_test.go, and writes that have an effect in users_test.go.

// bound is a way in which a role reaches a subject, and what it gives there.
type bound struct {
	name       string
	role       string   // the kind of the role; "" for none
	everywhere bool     // by a ClusterRoleBinding
	resources  []string // the prefixes of resources whose rules of the type app-intent may be written
}

var bounds = []bound{
	{name: "none"},
	{name: "role", role: "Role", resources: []string{""}},
	{name: "clusterrole", role: "ClusterRole", resources: []string{"mwan3", "ipsec"}},
	{name: "everywhere", role: "ClusterRole", everywhere: true, resources: []string{""}},
}

// caller is a subject with a binding.
type caller struct {
	bound
	subject string
	client  client.Client
}

// mayWrite is the rule that the matrix is compared with: whoever writes needs a role that counts in
// the namespace and lists the kind with the type that the object has, and with the one that it
// gets.
func (c caller) mayWrite(here bool, resource string, types ...string) bool {
	counts := c.role != "" && (here || c.everywhere)
	listed := slices.ContainsFunc(c.resources, func(prefix string) bool { return strings.HasPrefix(resource, prefix) })
	return counts && listed && !slices.ContainsFunc(types, func(t string) bool { return t != "app-intent" })
}

// cell is a request, of a caller and a kind.
type cell struct {
	name  string
	here  bool     // in the namespace of the Roles and RoleBindings
	types []string // that the objects have, and get
	do    func(context.Context, client.Client) error
}

var matrixTypes = []string{"app-intent", "basic", ""}

func TestMatrixOfUsers(t *testing.T) {
	e := env(t)
	here := e.server.Namespace(t, "matrix")
	elsewhere := e.server.Namespace(t, "matrix")
	// The policy that rules use has a type of its own: a deletion of many that includes it would be
	// refused as it is in use.
	for _, ns := range []string{here, elsewhere} {
		e.create(t, policy(ns, "a", "cnf", "in-use"))
	}
	stored := map[string][]sdewan.Rule{} // by type, in the order of kinds
	for _, bucket := range matrixTypes {
		for _, r := range samples(here, bucket) {
			r.SetName(r.GetName() + "-" + bucket + "x")
			e.create(t, r)
			stored[bucket] = append(stored[bucket], r)
		}
	}
	callers := e.callers(t, here, elsewhere)
	var mu sync.Mutex
	var wrong []string
	asked := 0
	var group sync.WaitGroup
	for _, c := range callers {
		group.Go(func() {
			for i, k := range sdewan.Kinds() {
				of := map[string]sdewan.Rule{}
				for bucket, rules := range stored {
					of[bucket] = rules[i]
				}
				for _, x := range cells(k, of, elsewhere) {
					answer := answerOf(x.do(t.Context(), c.client))
					want := "refused"
					if c.mayWrite(x.here, k.Resource, x.types...) {
						want = "allowed"
					}
					mu.Lock()
					if asked++; answer != want {
						wrong = append(
							wrong,
							fmt.Sprintf("%s with binding %q: %s %s.%s: %s, not %s", c.subject, c.name, x.name,
								k.Resource, k.GVK.Group, answer, want),
						)
					}
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	slices.Sort(wrong)
	const shown = 20
	require.Zero(t, len(wrong), "%d of %d answers are wrong, such as\n%s", len(wrong), asked,
		strings.Join(wrong[:min(len(wrong), shown)], "\n"))
	t.Logf("%d answers, of %d callers", asked, len(callers))
}

// answerOf returns "allowed", "refused" if the permission was missing, or what else went wrong.
func answerOf(err error) string {
	switch {
	case err == nil:
		return "allowed"
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), " may not change "):
		return "refused"
	}
	return err.Error()
}

// cells are all requests about a kind. of has a stored rule of each type.
func cells(k sdewan.Kind, of map[string]sdewan.Rule, elsewhere string) (out []cell) {
	add := func(here bool, name string, types []string, do func(context.Context, client.Client) error) {
		out = append(out, cell{fmt.Sprintf("%s %q", name, types), here, types, do})
	}
	for was, o := range of {
		one := []string{was}
		for ns, name := range map[string]string{o.GetNamespace(): "create", elsewhere: "create in another namespace"} {
			add(ns != elsewhere, name, one, func(ctx context.Context, c client.Client) error {
				fresh := relabelled(o, was)
				fresh.SetNamespace(ns)
				fresh.SetName("new")
				fresh.SetResourceVersion("")
				fresh.SetUID("")
				return c.Create(ctx, fresh)
			})
		}
		add(true, "delete", one,
			func(ctx context.Context, c client.Client) error { return c.Delete(ctx, relabelled(o, was)) })
		add(true, "deletecollection", one, func(ctx context.Context, c client.Client) error {
			return deleteAll(ctx, c, o, "sdewan-bucket-type="+was, was == "")
		})
		add(true, "update status", one,
			func(ctx context.Context, c client.Client) error { return c.Status().Update(ctx, relabelled(o, was)) })
		add(true, "patch status", one, func(ctx context.Context, c client.Client) error {
			return c.Status().Patch(ctx, relabelled(o, was),
				client.RawPatch(types.MergePatchType, []byte(`{"status":{"inSync":true}}`)))
		})
		for is := range of {
			both := []string{was, is}
			add(true, "update", both,
				func(ctx context.Context, c client.Client) error { return c.Update(ctx, relabelled(o, is)) })
			add(true, "patch", both, func(ctx context.Context, c client.Client) error {
				label := fmt.Sprintf("%q", is)
				if is == "" {
					label = "null"
				}
				text := fmt.Sprintf(`{"metadata":{"annotations":{"a":"b"},"labels":{"sdewan-bucket-type":%s}}}`, label)
				return c.Patch(ctx, relabelled(o, was), client.RawPatch(types.MergePatchType, []byte(text)))
			})
		}
	}
	add(true, "deletecollection", matrixTypes, func(ctx context.Context, c client.Client) error {
		return deleteAll(ctx, c, of["basic"], "sdewan-bucket-type!=in-use", false)
	})
	return out
}

// relabelled returns a copy of a rule with another type.
func relabelled(o sdewan.Rule, bucket string) client.Object {
	c := o.DeepCopyObject().(client.Object)
	l := map[string]string{sdewan.PurposeLabel: o.GetLabels()[sdewan.PurposeLabel]}
	if bucket != "" {
		l[sdewan.BucketLabel] = bucket
	}
	c.SetLabels(l)
	return c
}

// deleteAll deletes the rules of the kind of o that a selector chooses, or those without a type.
func deleteAll(ctx context.Context, c client.Client, o sdewan.Rule, selector string, without bool) error {
	if without {
		selector = "!sdewan-bucket-type"
	}
	s, err := labels.Parse(selector)
	if err != nil {
		return err
	}
	return c.DeleteAllOf(ctx, relabelled(o, ""), client.InNamespace(o.GetNamespace()),
		client.MatchingLabelsSelector{Selector: s})
}

// callers creates every subject with every binding. Accounts are in another namespace than what
// they write. Who has no binding has the name by which another sort of subject has its rights, or
// an account in the other namespace.
func (e *environment) callers(t testing.TB, here, elsewhere string) (out []caller) {
	t.Helper()
	name := func(subject string, b bound) string { return here + "-" + subject + "-" + b.name }
	for _, b := range bounds {
		user := name("user", b)
		group := name("group", b)
		account := name("account", b)
		home := elsewhere
		if b.role == "" {
			user = name("group", bounds[1])
			group = name("user", bounds[1])
			account = name("account", bounds[1])
			home = here
		}
		e.account(t, home, account)
		list := []caller{
			{b, "a user", e.certified(t, user)},
			{b, "a group", e.certified(t, name("member", b), group)},
			{b, "an account", e.accountClient(t, home, account)},
		}
		if b.role != "" {
			e.bind(t, b, here, name("binding", b), []rbacv1.Subject{
				{
					Kind: rbacv1.UserKind,
					Name: user,
				},
				{Kind: rbacv1.GroupKind, Name: group},
				{Kind: rbacv1.ServiceAccountKind, Namespace: home, Name: account},
			})
			for _, c := range list {
				e.eventually(t, c.client, policy(here, "probe", "cnf", "app-intent"))
			}
		}
		out = append(out, list...)
	}
	for i := range out {
		out[i].client = client.NewDryRunClient(out[i].client)
	}
	return out
}

// bind gives subjects a role with the annotation of b.
func (e *environment) bind(t testing.TB, b bound, namespace, name string, subjects []rbacv1.Subject) {
	t.Helper()
	var lists []string
	for _, prefix := range b.resources {
		lists = append(lists, fmt.Sprintf(`%q: ["app-intent"]`, prefix+"*"))
	}
	annotation := "{" + strings.Join(lists, ", ") + "}"
	var role client.Object = &rbacv1.Role{ObjectMeta: described(namespace, name, annotation)}
	if b.role == "ClusterRole" {
		role = &rbacv1.ClusterRole{ObjectMeta: described("", name, annotation)}
	}
	var binding client.Object = &rbacv1.RoleBinding{
		ObjectMeta: described(namespace, name, ""),
		RoleRef:    roleRef(b.role, name),
		Subjects:   subjects,
	}
	if b.everywhere {
		binding = &rbacv1.ClusterRoleBinding{
			ObjectMeta: described("", name, ""),
			RoleRef:    roleRef(b.role, name),
			Subjects:   subjects,
		}
	}
	e.create(t, role, binding)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = e.admin.Delete(ctx, binding)
		_ = e.admin.Delete(ctx, role)
	})
}
