package cmd

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	batch "subctl/api/sdewan/v1alpha1"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/brokertest"
	"subctl/cluster"
	"subctl/internal/cli"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
	"subctl/sdewan"
)

var (
	permissionsRow = regexp.MustCompile("(?m)^\\| `([a-z][^`]*)` \\| (`[\\w,]+ [a-z].*) \\|$")
	// A name in italics stands for several permissions.
	permissionsSet = regexp.MustCompile(`(?m)^\| (\*[a-z]+\*) \| (.*) \|$`)
	permission     = regexp.MustCompile("`([\\w,]+) ([^ `]+)( -A| -n [a-z0-9-]+)?`")
)

// userRights is a command of docs/permissions.md, with its permissions, entry by entry.
type userRights struct {
	command string
	entries [][]kube.Right
}

// permissionsPage returns the commands of a section of docs/permissions.md.
func permissionsPage(t *testing.T, section string) []userRights {
	t.Helper()
	page, err := os.ReadFile("../docs/permissions.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(page), "\n## "+section+"\n")
	require.True(t, found, section)
	text, _, _ = strings.Cut(text, "\n## ")
	for _, set := range permissionsSet.FindAllStringSubmatch(string(page), -1) {
		text = strings.ReplaceAll(text, set[1], set[2])
	}
	var out []userRights
	for _, row := range permissionsRow.FindAllStringSubmatch(text, -1) {
		require.NotContains(t, row[2], "*", "a set of permissions that is not defined")
		u := userRights{command: row[1]}
		for _, p := range permission.FindAllStringSubmatch(row[2], -1) {
			resource, group, _ := strings.Cut(p[2], ".")
			if name, sub, has := strings.Cut(group, "/"); has { // submariners.submariner.io/status
				resource = resource + "/" + sub
				group = name
			}
			var entry []kube.Right
			for verb := range strings.SplitSeq(p[1], ",") {
				entry = append(
					entry,
					kube.NewRight(verb, group, resource,
						strings.TrimPrefix(strings.TrimSpace(strings.TrimPrefix(p[3], " -A")), "-n ")),
				)
			}
			u.entries = append(u.entries, entry)
		}
		out = append(out, u)
	}
	require.NotEmpty(t, out, section)
	return out
}

// refusals are what messages about missing permissions contain: of the API server, and of commands
// that check the permissions first.
var refusals = []string{"forbidden", "may not", "does not allow this user to"}

// require runs the command as users who have its permissions, and as users who lack one entry of
// them. Where that has several verbs, the command names all of them. A command that installs
// something succeeds with all of them.
func (u userRights) require(t *testing.T, server *kubetest.Server, admin client.Client, installs bool, prepare func()) {
	t.Helper()
	for without := range len(u.entries) + 1 { // with all of them last: it may change something
		rights := slices.Concat(u.entries...)
		lacking := []kube.Right(nil)
		if without < len(u.entries) {
			lacking = u.entries[without]
			rights = slices.DeleteFunc(rights, func(r kube.Right) bool { return slices.Contains(lacking, r) })
		}
		users++
		user := fmt.Sprintf("user-%d", users)
		permit(t, server, admin, user, rights)
		prepare()
		var stdout, stderr bytes.Buffer
		code := run(t.Context(),
			newGlobals(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr}),
			commandAs(u.command, user))
		refused := slices.ContainsFunc(refusals,
			func(text string) bool { return strings.Contains(stderr.String(), text) })
		require.Equal(t, lacking != nil, refused, "%s, without the permissions %v: exit code %d: %s", u.command,
			lacking, code, &stderr)
		if installs {
			require.Equal(t, lacking == nil, code == cli.ExitDone, "%s: %s", u.command, &stderr)
		}
		for _, r := range lacking {
			if strings.Contains(stderr.String(), "attempting to grant RBAC permissions not currently held") &&
				slices.Contains([]string{"bind", "escalate"}, r.Verb) {
				continue // this is how the API server says so
			}
			require.Contains(t, stderr.String(), r.Verb, u.command)
			require.Contains(t, stderr.String(), strings.Split(r.Resource, "/")[0], u.command)
		}
	}
}

// users counts the users of all tests.
var users int

// Each command of docs/permissions.md works for a user who has exactly the permissions
// listed there, and is denied without any one of them.
func TestPermissions(t *testing.T) {
	ctrllog.SetLogger(logr.Discard()) // otherwise it prints a warning after 30 s
	server := kubetest.Start(t)
	server.InstallCRDs(t)
	t.Setenv("KUBECONFIG", server.Kubeconfig())
	t.Setenv("HOME", t.TempDir())
	admin := server.Client(t)
	commands := permissionsPage(t, "Inspect, and choose cables")
	createExportable(t, admin)
	objs, _ := scenario(t, "two-clusters")
	objs = append([]client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.Namespace}}}, objs...)
	for _, o := range objs {
		if sub, ok := o.(*v1alpha1.Submariner); ok {
			sub.Spec.ServiceDiscoveryEnabled = true
		}
		require.NoError(t, admin.Create(t.Context(), o))
	}
	worker := &corev1.Node{}
	require.NoError(t, admin.Get(t.Context(), client.ObjectKey{Name: "worker"}, worker))
	worker.Labels = map[string]string{corev1.LabelOSStable: "linux"}
	require.NoError(t, admin.Update(t.Context(), worker))
	t.Chdir(t.TempDir())
	for name, mtu := range map[string]int{"policies.yaml": 1300, "changed.yaml": 1301} {
		text := fmt.Sprintf(
			"kind: ConfigMap\nmetadata: {name: tuned}\ndata: {CableCustomConfig: \"mtu: %d\"}\n---\n"+
				"kind: CablePolicies\nmetadata: {name: zoned}\nspec: [{name: ipsec, leftClusterSelector: {matchLabels: {zone: us}}, options: {metadata: {name: tuned}}}]\n",
			mtu,
		)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	var shown []string
	for _, u := range commands {
		shown = append(shown, strings.Join(strings.Fields(u.command)[:2], " "))
		// Here are no agents.
		u.require(t, server, admin, false, func() { putInForce(t, admin); makeReady(t, admin, "worker") })
	}
	for _, s := range tables() {
		require.Contains(t, shown, "show "+s.Noun, "docs/permissions.md lacks a command")
	}
}

// makeReady does what the kubelet of a node does.
func makeReady(t *testing.T, c client.Client, node string) {
	t.Helper()
	n := &corev1.Node{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: node}, n))
	was := n.DeepCopy()
	n.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()},
	}
	require.NoError(t, c.Status().Patch(t.Context(), n, client.MergeFrom(was)))
}

// putInForce does what a gateway does with the policies made in its cluster: it shares them.
func putInForce(t *testing.T, c client.Client) {
	t.Helper()
	var list v1alpha1.CablePoliciesList
	require.NoError(t, c.List(t.Context(), &list, client.InNamespace(cluster.Namespace)))
	for _, p := range list.Items {
		if !submarinerv1.IsCopy(&p) && len(p.Status.ClusterSets) == 0 {
			was := p.DeepCopy()
			p.Status.ClusterSets = []string{submarinerv1.DefaultClusterSet}
			require.NoError(t, c.Status().Patch(t.Context(), &p, client.MergeFrom(was)))
		}
	}
}

// The same for the commands that install and remove: on one cluster, which becomes a broker, joins
// it and leaves it.
func TestPermissionsToInstall(t *testing.T) {
	ctrllog.SetLogger(logr.Discard())
	commands := slices.Concat(permissionsPage(t, "Deploy a broker"), permissionsPage(t, "Join a cluster"),
		permissionsPage(t, "Replace keys, and leave"))
	w := &joinWorld{member: kubetest.Start(t)}
	w.memberC = w.member.Client(t)
	w.node(t, "n1", "10.244.1.0/24") // in the range of the server's controller manager, which may start later
	t.Setenv("KUBECONFIG", w.member.Kubeconfig())
	t.Setenv("HOME", t.TempDir())
	t.Chdir(t.TempDir())
	for _, u := range commands {
		switch {
		case strings.HasPrefix(u.command, "cable-policy adopt"): // the broker exists
			p := cablePolicy(strings.Fields(u.command)[2], " |  | ipsec")
			p.Namespace = submarinerv1.BrokerNamespace
			p.Labels = map[string]string{submarinerv1.ClusterIDLabel: "east"}
			require.NoError(t, w.memberC.Create(t.Context(), brokertest.InSlot(p, "east", 0)))
		case strings.HasPrefix(u.command, "rotate-key"): // the cluster has joined
			g := gateway("west", "gone", 0, []submarinerv1.Connection{}...)
			g.ObjectMeta = metav1.ObjectMeta{Name: "gone", Namespace: cluster.Namespace}
			require.NoError(t, w.memberC.Create(t.Context(), g))
		}
		u.require(t, w.member, w.memberC, true, func() {
			w.heartbeat(t)
			if strings.HasPrefix(u.command, "uninvite") { // a user who may do a part of it withdraws a part
				invitee := &corev1.ServiceAccount{
					ObjectMeta: metav1.ObjectMeta{Namespace: submarinerv1.BrokerNamespace, Name: "invitee-north"},
				}
				require.NoError(t, client.IgnoreAlreadyExists(w.memberC.Create(t.Context(), invitee)))
			}
		})
	}
	ds := &appsv1.DaemonSetList{}
	require.NoError(t, w.memberC.List(t.Context(), ds))
	require.Empty(t, ds.Items, "the cluster has left")
}

// The same for the commands that change clustersets: on a broker in another namespace, with members
// that have published their grants.
func TestPermissionsForClusterSets(t *testing.T) {
	ctrllog.SetLogger(logr.Discard())
	commands := permissionsPage(t, "Clustersets")
	w := newSetsWorld(t)
	for _, u := range commands {
		u.command += " --namespace " + w.NS
		for _, entry := range u.entries {
			for i := range entry {
				entry[i].Namespace = strings.Replace(entry[i].Namespace, submarinerv1.BrokerNamespace, w.NS, 1)
			}
		}
		u.require(t, w.Server, w.Admin, true, func() {})
	}
}

// The same for the commands of SD-EWAN: on a cluster with a CNF and rules, whose webhooks do not
// run.
func TestPermissionsForSdewan(t *testing.T) {
	ctrllog.SetLogger(logr.Discard())
	commands := permissionsPage(t, "SD-EWAN")
	server := kubetest.Start(t)
	admin := server.Client(t)
	t.Setenv("KUBECONFIG", server.Kubeconfig())
	t.Setenv("HOME", t.TempDir())
	createExportable(t, admin)
	var tried []string
	for _, u := range commands {
		noun := strings.TrimPrefix(u.command, "sdewan ")
		tried = append(tried, noun)
		changes := strings.HasPrefix(noun, "install") || strings.HasPrefix(noun, "uninstall")
		if !changes {
			exampleWorld{map[string]client.Client{"west": admin}}.rules(t)
			service := &batch.CNFService{
				ObjectMeta: metav1.ObjectMeta{
					Name:      "web",
					Namespace: "default",
					Labels:    map[string]string{sdewan.PurposeLabel: "cnf-1"},
				},
			}
			service.Spec = batch.CNFServiceSpec{FullName: "web.default.svc.cluster.local", Port: "2288", DPort: "80"}
			require.NoError(t, client.IgnoreAlreadyExists(admin.Create(t.Context(), service)))
		}
		u.require(t, server, admin, changes, func() {})
	}
	root := newSdewan(newGlobals(genericiooptions.IOStreams{}))
	cli.Each(root, func(c *cobra.Command) {
		if cli.Offline(c) {
			return
		}
		noun := strings.TrimPrefix(c.CommandPath(), "sdewan ")
		require.True(t,
			slices.ContainsFunc(tried, func(line string) bool { return strings.HasPrefix(line+" ", noun+" ") }),
			"docs/permissions.md lacks subctl sdewan %s", noun)
	})
}

// commandAs returns the arguments of a command that a user runs.
func commandAs(command, user string) []string {
	args := append(strings.Fields(command), "--as", user)
	if strings.Contains(command, "--wait") { // nobody is connected here
		args = append(args, "--timeout", "1s")
	}
	return args
}

// permit gives a new user permissions, and waits until the API server knows.
func permit(t *testing.T, server *kubetest.Server, admin client.Client, user string, rights []kube.Right) {
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{} // by namespace
	for _, r := range rights {
		rules[r.Namespace] = append(rules[r.Namespace],
			rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: []string{r.Verb}})
	}
	for ns, list := range rules {
		if err := admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); ns != "" &&
			!apierrors.IsAlreadyExists(err) {
			require.NoError(t, err) // rights in a namespace, which the command may have to create
		}
		name := strings.TrimSuffix(user+"-"+ns, "-")
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
		subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
		meta := metav1.ObjectMeta{Name: name, Namespace: ns}
		var binding client.Object = &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
		if ns != "" {
			binding = &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
		}
		require.NoError(t,
			admin.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: list}))
		require.NoError(t, admin.Create(t.Context(), binding))
	}
	config := server.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	c := kubetest.Client(t, config)
	require.Eventually(t, func() bool {
		denied, err := kube.Denied(t.Context(), c, rights)
		return err == nil && len(denied) == 0
	}, time.Minute, 20*time.Millisecond)
}
