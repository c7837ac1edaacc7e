package webhook

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipsec "subctl/api/sdewan/ipsec/v1alpha1"
	batch "subctl/api/sdewan/v1alpha1"
	"subctl/internal/kubetest"
	"subctl/sdewan"
)

// grant gives a subject a Role with an annotation, in a namespace.
func (e *environment) grant(t testing.TB, namespace, name, annotation string, subjects []rbacv1.Subject) {
	t.Helper()
	e.create(
		t,
		&rbacv1.Role{ObjectMeta: described(namespace, name, annotation)},
		&rbacv1.RoleBinding{
			ObjectMeta: described(namespace, name, ""),
			RoleRef:    roleRef("Role", name),
			Subjects:   subjects,
		},
	)
}

// samples are rules of every kind that use nothing.
func samples(namespace, bucket string) (out []sdewan.Rule) {
	for _, r := range []sdewan.Rule{
		policy("", "", "", ""),
		rule("", "", "", "", "a"),
		zone("", "", ""),
		&batch.FirewallForwarding{Spec: batch.FirewallForwardingSpec{Src: "*", Dest: "*"}},
		&batch.FirewallRule{},
		&batch.FirewallSNAT{Spec: batch.FirewallSNATSpec{Dest: "*", SrcDIP: "192.0.2.1"}},
		&batch.FirewallDNAT{Spec: batch.FirewallDNATSpec{Src: "*"}},
		&batch.IpsecProposal{Spec: batch.IpsecProposalSpec{Encryption: "aes256"}},
		&ipsec.IpsecProposal{Spec: batch.IpsecProposalSpec{Encryption: "aes256"}},
		&batch.IpsecSite{Spec: site("")},
		&ipsec.IpsecSite{Spec: site("")},
		&batch.IpsecHost{
			Spec: batch.IpsecHostSpec{
				IpsecRemote: site("").IpsecRemote,
				Connections: []batch.IpsecHostConnection{{IpsecConnection: site("").Connections[0].IpsecConnection}},
			},
		},
		&ipsec.IpsecHost{
			Spec: batch.IpsecHostSpec{
				IpsecRemote: site("").IpsecRemote,
				Connections: []batch.IpsecHostConnection{{IpsecConnection: site("").Connections[0].IpsecConnection}},
			},
		},
		&batch.NetworkFirewallRule{Spec: batch.NetworkFirewallRuleSpec{Src: "net0"}},
		&batch.CNFService{Spec: batch.CNFServiceSpec{FullName: "web.default.svc", Port: "1", DPort: "2"}},
		&batch.CNFNAT{Spec: batch.CNFNATSpec{Target: "MASQUERADE", Dest: "net0"}},
		&batch.CNFRoute{Spec: batch.CNFRouteSpec{Dst: "192.0.2.0/24", Dev: "net0"}},
		&batch.CNFRouteRule{Spec: batch.CNFRouteRuleSpec{Src: "192.0.2.0/24", Table: "cnf"}},
	} {
		k, _ := sdewan.KindOf(r)
		group, _, _ := strings.Cut(k.GVK.Group, ".")
		out = append(out, labelled(namespace, group+"-"+strings.ToLower(k.GVK.Kind), "cnf", bucket, r))
	}
	return out
}

// Every verb on every kind, by a user who may write app-intent only.
func TestVerbsOfAllKinds(t *testing.T) {
	e := env(t)
	ns := e.server.Namespace(t, "verbs")
	e.create(t, policy(ns, "a", "cnf", "basic"))
	e.grant(t, ns, "intent", intentOnly, subject("User", "", "ann"))
	ann := e.as(t, "ann")
	e.eventually(t, ann, policy(ns, "probe", "cnf", "app-intent"))
	own := samples(ns, "app-intent")
	basic := samples(ns, "basic")
	bare := samples(ns, "")
	require.Len(t, own, len(sdewan.Kinds()))
	for i := range own {
		k, _ := sdewan.KindOf(own[i])
		t.Run(k.GVK.Group+"/"+k.GVK.Kind, func(t *testing.T) {
			patch := func(to sdewan.Rule, text string) error {
				return ann.Patch(t.Context(), to.DeepCopyObject().(client.Object),
					client.RawPatch(types.MergePatchType, []byte(text)))
			}
			status := func(to sdewan.Rule) error {
				return ann.Status().Patch(t.Context(), to.DeepCopyObject().(client.Object),
					client.RawPatch(types.MergePatchType, []byte(`{"status":{"inSync":true}}`)))
			}
			relabel := func(to string) string {
				return fmt.Sprintf(`{"metadata":{"labels":{"sdewan-bucket-type":%s}}}`, to)
			}
			const mine = "no role of this user has the annotation sdewan-bucket-type-permission"
			require.NoError(t, ann.Create(t.Context(), own[i]))
			require.NoError(t, patch(own[i], `{"metadata":{"annotations":{"a":"b"}}}`))
			require.NoError(t, status(own[i]))
			denied(t, patch(own[i], relabel(`"basic"`)), mine)
			denied(t, patch(own[i], relabel(`null`)), mine)
			require.NoError(t, ann.Delete(t.Context(), own[i]))

			denied(t, ann.Create(t.Context(), basic[i].DeepCopyObject().(client.Object)), mine)
			denied(t, ann.Create(t.Context(), bare[i].DeepCopyObject().(client.Object)), mine)
			e.create(t, basic[i])
			denied(t, patch(basic[i], `{"metadata":{"annotations":{"a":"b"}}}`), mine)
			denied(t, patch(basic[i], `{"metadata":{"finalizers":["example.com/a"]}}`), mine)
			denied(
				t,
				patch(basic[i],
					`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Secret","name":"gone","uid":"1"}]}}`),
				mine,
			)
			denied(t, patch(basic[i], relabel(`"app-intent"`)), mine)
			denied(t, status(basic[i]), mine)
			denied(t, ann.Delete(t.Context(), basic[i]), mine)
			denied(
				t,
				ann.DeleteAllOf(t.Context(), k.New(), client.InNamespace(ns),
					client.MatchingLabels{sdewan.BucketLabel: "basic"}),
				mine,
			)
			require.NoError(t, e.admin.Get(t.Context(), client.ObjectKeyFromObject(basic[i]), basic[i]))
			require.NoError(t, e.admin.Delete(t.Context(), basic[i]))
		})
	}
}

// eventually waits until the webhooks have read the roles of a user, who may create a rule then.
func (e *environment) eventually(t testing.TB, c client.Client, o client.Object) {
	t.Helper()
	require.Eventually(t, func() bool {
		return client.NewDryRunClient(c).Create(t.Context(), o.DeepCopyObject().(client.Object)) == nil
	}, patience, 20*time.Millisecond)
}

// Attacks on the permission by types. Each attacker may write app-intent, and wants to write basic.
func TestHostileUsers(t *testing.T) {
	e := env(t)
	ns := e.server.Namespace(t, "hostile")
	elsewhere := e.server.Namespace(t, "hostile")
	e.grant(t, ns, "platform", anything, subject("Group", "", "platform"))
	e.grant(t, ns, "robot", anything, subject("ServiceAccount", ns, "robot"))
	e.grant(t, ns, "intent", intentOnly, subject("Group", "", "developers"))
	e.grant(t, elsewhere, "all", anything, subject("Group", "", "developers"))
	e.eventually(t, e.as(t, "boss", "platform"), policy(ns, "probe", "cnf", "basic"))
	e.eventually(t, e.as(t, "mallory", "developers"), policy(ns, "probe", "cnf", "app-intent"))
	wanted := policy(ns, "wanted", "cnf", "basic")
	for name, attacker := range map[string]client.Client{
		"a developer":                                     e.as(t, "mallory", "developers"),
		"a user named like the group":                     e.as(t, "platform", "developers"),
		"a group named like the user":                     e.as(t, "mallory", "boss"),
		"a service account of the name elsewhere":         e.as(t, "system:serviceaccount:"+elsewhere+":robot"),
		"a user named like the account":                   e.as(t, "robot"),
		"a group in other letters":                        e.as(t, "mallory", "Platform"),
		"no group":                                        e.as(t, "mallory"),
		"a user whose name is a pattern":                  e.as(t, "*", "*"),
		"a user whose name is an index":                   e.as(t, "Group/platform", "Group/platform"),
		"an account named like the controller":            e.as(t, "system:serviceaccount:"+ns+":"+account),
		"an account named like the namespace controller":  e.as(t, "system:serviceaccount:"+ns+":namespace-controller"),
		"all authenticated users":                         e.as(t, "mallory", "system:authenticated"),
		"a cluster role, bound here, that has all rights": e.boundHere(t, ns),
	} {
		t.Run(name, func(t *testing.T) {
			denied(t, attacker.Create(t.Context(), wanted.DeepCopy()),
				"may not change mwan3policies with the label sdewan-bucket-type=basic in namespace "+ns)
		})
	}
	t.Run("a deletecollection that begins with an own rule", func(t *testing.T) {
		e.create(t, policy(ns, "a-own", "cnf", "app-intent"), policy(ns, "b-basic", "cnf", "basic"))
		err := e.as(t, "mallory", "developers").DeleteAllOf(t.Context(), &batch.Mwan3Policy{}, client.InNamespace(ns))
		require.ErrorContains(t, err, "denied the request")
		require.NoError(t,
			e.admin.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "b-basic"}, &batch.Mwan3Policy{}))
	})
	t.Run("an account that was just created, with a token of its own", func(t *testing.T) {
		fresh := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "fresh"}}
		e.create(t, fresh)
		c := kubetest.Client(t, e.token(t, ns, "fresh"))
		denied(t, c.Create(t.Context(), wanted.DeepCopy()), "may not change")
		// An account with a grant has it only while it has the name: RBAC has no other identity of
		// accounts.
		e.grant(t, ns, "fresh", anything, subject("ServiceAccount", "", "fresh"))
		e.eventually(t, c, wanted)
		require.NoError(t, e.admin.Delete(t.Context(), fresh))
		require.Eventually(t, func() bool {
			return apierrors.IsUnauthorized(client.NewDryRunClient(c).Create(t.Context(), wanted.DeepCopy()))
		}, patience, 100*time.Millisecond)
	})
	t.Run("an update that needs both types", func(t *testing.T) {
		boss := e.as(t, "boss", "platform")
		r := policy(ns, "moved", "cnf", "app-intent")
		require.NoError(t, boss.Create(t.Context(), r))
		require.NoError(
			t,
			boss.Patch(t.Context(), r,
				client.RawPatch(types.MergePatchType,
					[]byte(`{"metadata":{"labels":{"sdewan-bucket-type":"basic"}}}`))),
		)
	})
}

// boundHere returns a client of a user who has cluster-admin in a namespace only.
func (e *environment) boundHere(t testing.TB, namespace string) client.Client {
	t.Helper()
	e.create(
		t,
		&rbacv1.RoleBinding{
			ObjectMeta: described(namespace, "admin", ""),
			RoleRef:    roleRef("ClusterRole", "cluster-admin"),
			Subjects:   subject("User", "", "local-admin"),
		},
	)
	return e.as(t, "local-admin")
}

// Those who must be able to write everything can: administrators, the controller, and Kubernetes
// itself, which empties a namespace in any order.
func TestWhoIsFree(t *testing.T) {
	e := env(t)
	ns := e.server.Namespace(t, "free")
	e.create(
		t,
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: described("", "free-admin", ""),
			RoleRef:    roleRef("ClusterRole", "cluster-admin"),
			Subjects:   subject("Group", "", "kubeadm:cluster-admins"),
		},
	)
	t.Cleanup(func() {
		_ = e.admin.Delete(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: described("", "free-admin", "")})
	})
	e.eventually(t, e.as(t, "kubernetes-admin", "kubeadm:cluster-admins"), policy(ns, "probe", "cnf", "basic"))
	e.create(t, policy(ns, "a", "cnf", "basic"), rule(ns, "r", "cnf", "", "a"))
	controller := kubetest.Client(t, e.token(t, system, account))
	require.NoError(t, controller.Create(t.Context(), rule(ns, "by-controller", "cnf", "k8s-service", "missing")))
	require.NoError(t, e.admin.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(e.admin.Get(t.Context(), client.ObjectKey{Name: ns}, &corev1.Namespace{}))
	}, patience, 200*time.Millisecond, "a policy that a rule uses blocks the deletion of its namespace")
}

// Users with Kubernetes' own roles in a namespace: view reads, edit and admin write all but the
// platform's rules; both by aggregation.
func TestRolesOfUsers(t *testing.T) {
	e := env(t)
	ns := e.server.Namespace(t, "roles")
	for _, role := range []string{"view", "edit", "admin"} {
		e.create(
			t,
			&rbacv1.RoleBinding{
				ObjectMeta: described(ns, role, ""),
				RoleRef:    roleRef("ClusterRole", role),
				Subjects:   subject("User", "", role),
			},
		)
	}
	for _, role := range []string{"edit", "admin"} {
		user := e.as(t, role)
		e.eventually(t, user, policy(ns, "probe", "cnf", "app-intent"))
		require.NoError(t, user.Create(t.Context(), policy(ns, role, "cnf", "")))
		denied(t, user.Create(t.Context(), policy(ns, role+"-basic", "cnf", "basic")), "may not change")
	}
	denied(t, e.as(t, "view").Create(t.Context(), policy(ns, "view", "cnf", "")), "may not change") // RBAC is open here
}

// A role whose annotation is no JSON gives nothing, harms nobody, and has an Event that says so.
func TestBadAnnotationHasEvent(t *testing.T) {
	e := env(t)
	ns := e.server.Namespace(t, "annotation")
	e.grant(t, ns, "broken", `{"*": ["*"]`, subject("User", "", "ann"))
	e.grant(t, ns, "intent", intentOnly, subject("User", "", "ann"))
	e.eventually(t, e.as(t, "ann"), policy(ns, "probe", "cnf", "app-intent"))
	denied(t, e.as(t, "ann").Create(t.Context(), policy(ns, "a", "cnf", "basic")), "may not change")
	require.Eventually(t, func() bool {
		list := &corev1.EventList{}
		require.NoError(t, e.admin.List(t.Context(), list, client.InNamespace(ns)))
		for _, event := range list.Items {
			if event.InvolvedObject.Kind == "Role" && event.InvolvedObject.Name == "broken" &&
				event.Type == corev1.EventTypeWarning &&
				strings.Contains(event.Message, "annotation sdewan-bucket-type-permission must be JSON such as") {
				return true
			}
		}
		return false
	}, patience, 50*time.Millisecond)
}
