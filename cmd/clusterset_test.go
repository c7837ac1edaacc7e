package cmd

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/cluster"
	"subctl/cluster/join"
	"subctl/internal/cli"
	"subctl/internal/kubetest"
)

// setsWorld is a broker with the clustersets default and prod, and the members east, hub-1 and west
// of default.
type setsWorld struct {
	*brokertest.Broker
	golden  string // the folder of the golden files
	file    string
	members map[string]client.Client // with the tokens of the members
}

func newSetsWorld(t *testing.T) setsWorld {
	server := kubetest.Shared(t)
	t.Setenv("KUBECONFIG", server.Kubeconfig())
	t.Setenv("HOME", t.TempDir())
	golden, err := filepath.Abs(filepath.Join("testdata", "clusterset"))
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	w := setsWorld{brokertest.Deploy(t, server, "prod"), golden, broker.JoinFileName, map[string]client.Client{}}
	_, file := w.Joiner(t)
	_, err = file.WriteFile(w.file, time.Now())
	require.NoError(t, err)
	for i, id := range []string{"east", "hub-1", "west"} {
		w.members[id] = w.Join(t, id, "uid-"+id)
		published := brokertest.Cluster(w.NS, id)
		published.Spec.ClusterCIDR = []string{
			fmt.Sprintf("10.%d.0.0/16", 1+i),
		}
		published.Spec.ServiceCIDR = []string{
			fmt.Sprintf("10.%d.0.0/16", 11+i),
		}
		published.Spec.GlobalCIDR = []string{}
		published.Annotations[submarinerv1.GrantAnnotation] = brokertest.IdentityIn(id,
			submarinerv1.DefaultClusterSet).Grant
		require.NoError(t, w.Admin.Create(t.Context(), published))
	}
	return w
}

// subctl runs subctl on the cluster of the broker.
func (w setsWorld) subctl(t *testing.T, line string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	g := newGlobals(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr})
	args := strings.Fields(line)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], `""`, "")
	}
	code := run(t.Context(), g, append(args, "--namespace", w.NS))
	scrub := func(s string) string {
		s = strings.ReplaceAll(s, w.NS, "BROKER")
		return regexp.MustCompile(`(?m) +$`).ReplaceAllString(s, "")
	}
	goodMessages(t, line, stderr.String())
	return result{code, scrub(stdout.String()), scrub(stderr.String())}
}

// state returns what commands could change: the clustersets, their members and the renewed grants.
func (w setsWorld) state(t *testing.T) string {
	t.Helper()
	out := w.subctl(t, "clusterset list -o yaml").stdout
	for id := range w.members {
		out += id + " " + w.account(t, id).ResourceVersion + "\n"
	}
	return strings.Join(sortedLines(out), "\n")
}

func sortedLines(text string) []string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return lines
}

func (w setsWorld) account(t *testing.T, id string) *corev1.ServiceAccount {
	t.Helper()
	sa := &corev1.ServiceAccount{}
	require.NoError(t, w.Admin.Get(t.Context(), client.ObjectKey{Namespace: w.NS, Name: broker.MemberName(id)}, sa))
	return sa
}

// requireSets requires that a cluster's renewed grant names exactly these clustersets, and that its
// token can read exactly them.
func (w setsWorld) requireSets(t *testing.T, id string, want ...string) {
	t.Helper()
	grant, err := brokertest.Administrator().Public().Grant(w.account(t, id).Annotations[submarinerv1.GrantAnnotation])
	require.NoError(t, err)
	require.Equal(t, append([]string{}, want...), append([]string{}, grant.Sets...), "the grant of %s", id)
	require.Equal(t, id, grant.Cluster)
	require.Equal(t, brokertest.Key(id).Public(), grant.Key)
	for _, set := range []string{submarinerv1.DefaultClusterSet, "prod"} {
		member := slices.Contains(want, set)
		brokertest.Eventually(t, func() bool {
			err := w.members[id].List(t.Context(), &submarinerv1.ClusterList{},
				client.InNamespace(broker.NamespaceIn(w.NS, set)))
			return member && err == nil || !member && apierrors.IsForbidden(err)
		})
	}
}

// Clustersets are created, filled, emptied and deleted.
func TestClusterSet(t *testing.T) {
	w := newSetsWorld(t)
	steps := func(name string, lines ...string) {
		t.Helper()
		var out strings.Builder
		for _, line := range lines {
			r := w.subctl(t, line)
			out.WriteString(
				"$ subctl " + line + "\n" + r.stdout + "-- stderr, exit code " + string(
					rune('0'+r.code)) + " --\n" + r.stderr + "\n",
			)
		}
		goldenText(t, filepath.Join(w.golden, name+".txt"), out.String())
	}
	before := w.state(t)
	steps("look", "clusterset list", "clusterset list -o json", "clusterset list -o yaml",
		"clusterset show prod default prod", "clusterset show prod -o json", "clusterset can east west",
		"clusterset can east west -o yaml")
	steps("dryrun", "clusterset create lab --dry-run", "clusterset create lab --dry-run -o json",
		"clusterset add prod east west --dry-run", "clusterset add prod east --dry-run -o yaml",
		"clusterset remove default east --dry-run", "clusterset remove default east --dry-run -o json --force",
		"clusterset delete prod --dry-run", "clusterset delete prod --dry-run -o yaml")
	require.Equal(t, before, w.state(t), "a dry run changed something")

	steps("create", "clusterset create lab stage lab", "clusterset list")
	steps("add", "clusterset add prod west east", "clusterset list", "clusterset add prod west",
		"clusterset can hub-1 west")
	w.requireSets(t, "east", "default", "prod")
	w.requireSets(t, "west", "default", "prod")

	steps("remove", "clusterset remove default east", "clusterset remove default east --force",
		"clusterset can hub-1 east", "clusterset can east west", "clusterset remove prod east",
		"clusterset remove prod east --force", "clusterset can hub-1 east", "clusterset can east hub-1")
	w.requireSets(t, "east")
	steps("add_again", "clusterset add default east --force", "clusterset remove prod east")
	w.requireSets(t, "east", "default")

	require.NoError(t, w.Admin.Create(t.Context(), &v1alpha1.CablePolicies{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "secure",
			Namespace: broker.NamespaceIn(w.NS, "prod"),
		}, ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: "wireguard"}},
	}))
	steps("delete", "clusterset delete stage", "clusterset delete prod", "clusterset delete prod --dry-run",
		"clusterset delete prod --force --dry-run -o json", "clusterset delete prod --force")
	grant, err := brokertest.Administrator().Public().Grant(
		w.account(t, "west").Annotations[submarinerv1.GrantAnnotation])
	require.NoError(t, err)
	require.Equal(t, []string{"default"}, grant.Sets)
}

// A clusterset that was deleted by hand, or not to the end, can be deleted and left afterwards.
func TestClusterSetDeletedByHand(t *testing.T) {
	w := newSetsWorld(t)
	require.Equal(t, cli.ExitDone, w.subctl(t, "clusterset add prod east hub-1 west").code)
	prod := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: broker.NamespaceIn(w.NS, "prod")}}
	require.NoError(t, w.Admin.Delete(t.Context(), prod))
	brokertest.Eventually(t, func() bool {
		return apierrors.IsNotFound(w.Admin.Get(t.Context(), client.ObjectKeyFromObject(prod), prod))
	})
	before := w.state(t)

	r := w.subctl(t, "clusterset add prod east")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Equal(t, "Error: the broker has no clusterset \"prod\": the clustersets are default\n", r.stderr)
	r = w.subctl(t, "clusterset delete prod --dry-run")
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.Equal(t, before, w.state(t), "nothing changed yet")

	r = w.subctl(t, "clusterset remove prod west")
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stderr,
		"the broker has no clusterset prod any more: this removes it from the grants of its former members\n")
	require.Equal(t, cli.ExitFailed, w.subctl(t, "clusterset remove prod west").code, "no grant names it")
	r = w.subctl(t, "clusterset delete prod")
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stderr,
		"clusters without rights in clusterset prod still have grants for it, which are renewed without it: east, hub-1\n")
	for _, id := range []string{"east", "hub-1", "west"} {
		w.requireSets(t, id, "default")
	}
	require.Equal(t, cli.ExitFailed, w.subctl(t, "clusterset delete prod").code, "there is nothing left")
}

// The creation of a clusterset is finished if it was interrupted, and waits for one of the name
// that is being deleted.
func TestClusterSetCreatedInPart(t *testing.T) {
	w := newSetsWorld(t)
	require.Equal(t, cli.ExitDone, w.subctl(t, "clusterset create lab").code)
	ns := broker.NamespaceIn(w.NS, "lab")
	missing := []client.Object{
		&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "submariner-k8s-broker"}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: broker.JoinerName}},
	}
	for _, o := range missing {
		require.NoError(t, w.Admin.Delete(t.Context(), o))
	}
	const says = "clusterset lab was not created to the end: this creates the rest\n"
	r := w.subctl(t, "clusterset create lab --dry-run")
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stderr, says)
	r = w.subctl(t, "clusterset create lab")
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stderr, says)
	for _, o := range missing {
		require.NoError(t, w.Admin.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	}
	require.Equal(t, cli.ExitFailed, w.subctl(t, "clusterset create lab").code, "it exists")

	keep := func(finalizers string) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+finalizers+`}}`))
		require.NoError(t,
			w.Admin.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, patch))
	}
	keep(`["example.com/kept"]`)
	require.NoError(t, w.Admin.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}))
	r = w.subctl(t, "clusterset create lab")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Equal(t,
		"Error: clusterset lab is being deleted: run the command again when its namespace BROKER-lab is gone\n",
		r.stderr)
	keep("null")
}

// A cluster that publishes no grant loses its rights, and keeps no other cluster in the clusterset.
func TestClusterSetRemovesTheOthers(t *testing.T) {
	w := newSetsWorld(t)
	east := &submarinerv1.Cluster{}
	require.NoError(t, w.Admin.Get(t.Context(), client.ObjectKey{Namespace: w.NS, Name: "east"}, east))
	delete(east.Annotations, submarinerv1.GrantAnnotation)
	require.NoError(t, w.Admin.Update(t.Context(), east))
	r := w.subctl(t, "clusterset remove default east hub-1 --force")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr,
		"cluster east has no rights and no objects in clusterset default any more, but its grant is not renewed: run the command again when it has published its grant")
	require.Contains(t, r.stderr, "removed cluster hub-1 from clusterset default\n")
	require.NotContains(t, r.stderr, "removed cluster east")
	w.requireSets(t, "hub-1")
	for _, id := range []string{"east", "west"} {
		brokertest.Eventually(t, func() bool {
			err := w.members[id].List(t.Context(), &submarinerv1.ClusterList{}, client.InNamespace(w.NS))
			return apierrors.IsForbidden(err) == (id == "east")
		})
	}
}

// Two clusters in one clusterset may get no cable: the command tells how to find out why.
func TestClusterSetCanButIsNotConnected(t *testing.T) {
	w := newSetsWorld(t)
	require.NoError(t,
		w.Admin.Create(t.Context(), brokertest.InSlot(brokertest.Endpoint(w.NS, "west", "10-0-0-1"), "west", 0)))
	secure := &v1alpha1.CablePolicies{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "secure",
			Namespace: w.NS,
		}, ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: "wireguard"}},
	}
	require.NoError(t, w.Admin.Create(t.Context(), secure))
	r := w.subctl(t, "clusterset can east west")
	require.Equal(t, cli.ExitDone, r.code, "no cluster accepts a policy without a signature: %s", r.stderr)
	require.Contains(t, r.stdout, "vxlan")
	require.NotContains(t, w.subctl(t, "clusterset list").stdout, "secure")
	refused := func() map[int]string {
		facts, err := join.ReadBrokerFacts(t.Context(), cluster.Side{Client: w.Admin}, w.NS, "west",
			[]string{"default"})
		require.NoError(t, err)
		return facts.Members[0].Refused
	}
	require.Len(t, refused(), 1, "subctl join knows it, too")

	require.NoError(t, exchange.Kinds().Sign(secure, brokertest.Administrator(), "default", 1))
	require.NoError(t, w.Admin.Update(t.Context(), secure))
	require.Contains(t, w.subctl(t, "clusterset list").stdout, "secure")
	require.Empty(t, refused())
	r = w.subctl(t, "clusterset can east west")
	require.Equal(t, cli.ExitTrouble, r.code)
	require.Contains(t, r.stdout, "none: cluster west")
	require.Equal(t, " ⚠ to see which policy decides: subctl cable-policy explain east west --broker\n", r.stderr)
}

// A command reports all mistakes at once with the remedies, and changes nothing.
func TestClusterSetMistakes(t *testing.T) {
	w := newSetsWorld(t)
	hub := &v1alpha1.Broker{}
	require.NoError(t, w.Admin.Get(t.Context(), client.ObjectKey{Namespace: w.NS, Name: v1alpha1.BrokerName}, hub))
	file, err := broker.Invite(t.Context(), w.Admin, hub, broker.Invitation{
		URL:           w.Server.Config().Host,
		PSK:           make(broker.Secret, 48),
		Administrator: brokertest.Key("another administrator"),
		TTL:           broker.MinTokenTTL,
	})
	require.NoError(t, err)
	_, err = file.WriteFile("other.subm", time.Now())
	require.NoError(t, err)
	require.Equal(t, cli.ExitDone, w.subctl(t, "invite north --join-file north.subm").code)
	before := w.state(t)
	for _, test := range []struct {
		line string
		code int
		want string
	}{
		{
			"create Lab x_y",
			cli.ExitUsage,
			`clusterset "Lab" cannot name a namespace: use at most 41 lower case letters, digits and '-', with a letter or digit at both ends` +
				"\n" +
				`clusterset "x_y" cannot name a namespace: use at most 41 lower case letters, digits and '-', with a letter or digit at both ends`,
		},
		{
			`create ""`,
			cli.ExitUsage,
			`clusterset "" cannot name a namespace: use at most 41 lower case letters, digits and '-', with a letter or digit at both ends`,
		},
		{"create", cli.ExitUsage, "create requires the names of clustersets: subctl clusterset create SET"},
		{"create lab -o json", cli.ExitUsage, "--output requires --dry-run"},
		{
			"create prod default lab",
			cli.ExitFailed,
			"clusterset default exists already: choose another name\nclusterset prod exists already: choose another name",
		},
		{
			"show prd other",
			cli.ExitFailed,
			"the broker has no clusterset \"prd\": the clustersets are default, prod; did you mean \"prod\"?\n" +
				"the broker has no clusterset \"other\": the clustersets are default, prod",
		},
		{
			`show ""`,
			cli.ExitUsage,
			`"" is not a clusterset: specify one of the clustersets that subctl clusterset list prints`,
		},
		{
			`add "" ""`,
			cli.ExitUsage,
			`"" is not a clusterset: specify one of the clustersets that subctl clusterset list prints` + "\n" +
				`cluster ID "" is not a DNS-1123 label: use at most 63 lower case letters, digits and '-', with a letter or digit at both ends`,
		},
		{
			"add prd est south",
			cli.ExitFailed,
			"the broker has no clusterset \"prd\": the clustersets are default, prod; did you mean \"prod\"?\n" +
				"the broker has no member \"est\": it has east, hub-1, west; did you mean \"east\"?\nthe broker has no member \"south\": it has east, hub-1, west",
		},
		{
			"add prod",
			cli.ExitUsage,
			"add requires a clusterset and the IDs of clusters: subctl clusterset add SET CLUSTER",
		},
		{
			"remove prod",
			cli.ExitUsage,
			"remove requires a clusterset and the IDs of clusters: subctl clusterset remove SET CLUSTER",
		},
		{
			"remove default east",
			cli.ExitFailed,
			"2 pairs of clusters would have no cable:\n" +
				"  east - hub-1: vxlan (the clusters' own default) → none: the two clusters have no clusterset in common\n" +
				"  east - west: vxlan (the clusters' own default) → none: the two clusters have no clusterset in common\n" +
				"these clusters would not be in any clusterset, and not be connected to any other: east\nnothing was changed: to continue nevertheless, add --force",
		},
		{
			"add prod east --broker-info nirvana.subm",
			cli.ExitFailed,
			"the administrator's key is needed to sign this, and only the join file that subctl deploy-broker wrote contains it: " +
				"there is no file nirvana.subm; specify another path with --broker-info",
		},
		{
			"add prod east --broker-info north.subm",
			cli.ExitFailed,
			"the administrator's key is needed to sign this, and only the join file that subctl deploy-broker wrote contains it: " +
				"north.subm is another one; specify the file with --broker-info",
		},
		{
			"add prd est --broker-info nirvana.subm",
			cli.ExitFailed,
			"the broker has no clusterset \"prd\": the clustersets are default, prod; did you mean \"prod\"?\n" +
				"the broker has no member \"est\": it has east, hub-1, west; did you mean \"east\"?\n" +
				"the administrator's key is needed to sign this, and only the join file that subctl deploy-broker wrote contains it: there is no file nirvana.subm; specify another path with --broker-info",
		},
		{
			"remove default west --broker-info nirvana.subm",
			cli.ExitFailed,
			"the administrator's key is needed to sign this, and only the join file that subctl deploy-broker wrote contains it: " +
				"there is no file nirvana.subm; specify another path with --broker-info\n" +
				"2 pairs of clusters would have no cable:\n" +
				"  east - west: vxlan (the clusters' own default) → none: the two clusters have no clusterset in common\n" +
				"  hub-1 - west: vxlan (the clusters' own default) → none: the two clusters have no clusterset in common\n" +
				"these clusters would not be in any clusterset, and not be connected to any other: west\nnothing was changed: to continue nevertheless, add --force",
		},
		{
			"add prod east --broker-info other.subm",
			cli.ExitFailed,
			"other.subm is of another broker than BROKER, or was written before the broker got new keys: " +
				"specify the file that subctl deploy-broker wrote for it",
		},
		{
			`add prod east --broker-info ""`, cli.ExitUsage,
			"--broker-info is empty: specify a value (is a variable not set?)",
		},
		{
			"delete default",
			cli.ExitUsage,
			"clusterset default cannot be deleted: its namespace has the broker's own objects",
		},
		{
			`delete ""`,
			cli.ExitUsage,
			`"" is not a clusterset: specify one of the clustersets that subctl clusterset list prints`,
		},
		{
			"delete prd --force",
			cli.ExitFailed,
			"the broker has no clusterset \"prd\": the clustersets are default, prod; did you mean \"prod\"?",
		},
		{
			"can east east",
			cli.ExitUsage,
			"can requires the IDs of two different clusters: subctl clusterset can CLUSTER CLUSTER",
		},
		{
			`can east ""`,
			cli.ExitUsage,
			`cluster ID "" is not a DNS-1123 label: use at most 63 lower case letters, digits and '-', with a letter or digit at both ends`,
		},
		{
			"can est wst",
			cli.ExitFailed,
			"the broker has no member \"est\": it has east, hub-1, west; did you mean \"east\"?\nthe broker has no member \"wst\": it has east, hub-1, west; did you mean \"west\"?",
		},
		{"rename prod", cli.ExitUsage, ""},
		{
			"create " + strings.Repeat("a", 9000),
			cli.ExitUsage,
			`clusterset "` + strings.Repeat("a", 64) +
				`" cannot name a namespace: use at most 41 lower case letters, digits and '-', with a letter or digit at both ends`,
		},
	} {
		got := w.subctl(t, "clusterset "+test.line)
		require.Equal(t, test.code, got.code, "%s: %s", test.line, got.stderr)
		if strings.Contains(test.want, "would have no cable") {
			require.Contains(t, got.stdout, "THEN", "%s: the pairs", test.line)
		} else {
			require.Empty(t, got.stdout, test.line)
		}
		if test.want != "" {
			require.Equal(t, "Error: "+test.want+"\n", got.stderr, test.line)
		}
	}
	r := w.subctl(t, "invite north --clusterset prd,prod,stage")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Equal(
		t,
		"Error: the broker has no clusterset \"prd\": the clustersets are default, prod; did you mean \"prod\"?\n"+
			"the broker has no clusterset \"stage\": the clustersets are default, prod\n",
		r.stderr,
	)
	r = w.subctl(t, "revoke east --yes --broker-info other.subm")
	require.Equal(
		t,
		result{
			cli.ExitFailed,
			"",
			"Error: other.subm is of another broker than BROKER, or was written before the broker got new keys: specify the file that subctl deploy-broker wrote for it\n",
		},
		r,
		"no member would accept the revocation",
	)
	require.Equal(t, before, w.state(t), "a refused change changed something")
}

// An invitation that nobody has used is revoked like a member.
func TestRevokeInvited(t *testing.T) {
	w := newSetsWorld(t)
	r := w.subctl(t, "revoke north --yes")
	require.Equal(
		t,
		result{
			cli.ExitFailed,
			"",
			"Error: the broker does not show that cluster \"north\" is or was a member, or is invited: it has east, hub-1, west; " +
				"to publish a revocation in all clustersets nevertheless, add --force\n",
		},
		r,
	)
	r = w.subctl(t, "invite north --join-file "+filepath.Join(t.TempDir(), "north.subm"))
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	r = w.subctl(t, "revoke north --yes")
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	r = w.subctl(t, "revoke north --yes")
	require.Equal(t, cli.ExitDone, r.code, "it can be repeated, for which the revocation is a trace: %s", r.stderr)
	r = w.subctl(t, "revoke north --dry-run")
	require.Contains(t, r.stdout+r.stderr, "publish a revocation of its grants and invitations in clusterset default\n")
	require.NotContains(t, r.stderr, "learn its ID")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.NS, Name: broker.MemberName("nobody")}}
	require.NoError(t, w.Admin.Create(t.Context(), account))
	r = w.subctl(t, "revoke nobody --yes")
	require.Equal(t, cli.ExitFailed, r.code, "its account shows no clusterset: %s", r.stderr)
	require.Contains(t, r.stderr,
		`cluster "nobody" has an identity on the broker, but nothing shows in which clustersets it was`)
	require.Contains(t, r.stderr, "add --force\n")
	r = w.subctl(t, "revoke nobody --force --dry-run")
	require.Contains(t, r.stderr,
		"nothing on the broker shows in which clustersets cluster nobody was: all clusters of the broker learn its ID, as the revocation is published in clusterset default, prod\n")
}

// Who may not read the broker is told what to do, by the commands that change nothing, too.
func TestClusterSetWithoutRights(t *testing.T) {
	w := newSetsWorld(t)
	before := w.state(t)
	for _, line := range []string{
		"list", "show prod", "can east west", "create lab", "add prod east", "remove default east --force",
		"delete prod",
	} {
		r := w.subctl(t, "clusterset "+line+" --as nobody")
		require.Equal(t, cli.ExitFailed, r.code, line)
		require.Contains(t, r.stderr, "forbidden: User \"nobody\"", line)
		require.Contains(t, r.stderr, ": use a context with ", line)
	}
	require.Equal(t, before, w.state(t))
}

// TestClusterSetNamesComplete: the names of clustersets, and then those of the clusters that can be
// meant.
func TestClusterSetNamesComplete(t *testing.T) {
	w := newSetsWorld(t)
	require.Equal(t, cli.ExitDone, w.subctl(t, "clusterset add prod west").code)
	for line, want := range map[string]string{
		"show ":                "default prod",
		"show prod ":           "default",
		"show p":               "prod",
		"create ":              "",
		"delete ":              "prod",
		"delete prod ":         "",
		"add ":                 "default prod",
		"add prod ":            "east hub-1",
		"add prod east ":       "hub-1",
		"remove prod ":         "west",
		"remove default h":     "hub-1",
		"can ":                 "east hub-1 west",
		"can east ":            "hub-1 west",
		"can east west ":       "",
		"list ":                "",
		"add --broker-info x ": "default prod",
	} {
		require.Equal(t, want, w.complete(t, line), line)
	}
	require.Equal(t, cli.ExitDone, w.subctl(t, "clusterset remove default east --force").code)
	for line, want := range map[string]string{
		"add default ":    "east",
		"can west ":       "east hub-1",
		"remove default ": "hub-1 west",
	} {
		require.Equal(t, want, w.complete(t, line), "%s, with a cluster that is in no clusterset", line)
	}
}

// complete returns the words that complete a line of subctl clusterset.
func (w setsWorld) complete(t *testing.T, line string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	g := newGlobals(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr})
	run(t.Context(), g, append([]string{"__complete", "clusterset", "--namespace", w.NS}, strings.Split(line, " ")...))
	values, directive, _ := strings.Cut(stdout.String(), ":")
	require.Equal(t, "4\n", directive, "%s: no files", line)
	return strings.Join(strings.Fields(values), " ")
}

// Clusters of two clustersets may use the same addresses, until a cluster is to reach both.
func TestClusterSetConflicts(t *testing.T) {
	w := newSetsWorld(t)
	publish := func(id, set, pods, services string) {
		t.Helper()
		c := &submarinerv1.Cluster{}
		key := client.ObjectKey{Namespace: broker.NamespaceIn(w.NS, set), Name: id}
		require.NoError(t, w.Admin.Get(t.Context(), key, c))
		c.Spec.ClusterCIDR = []string{pods}
		c.Spec.ServiceCIDR = []string{services}
		require.NoError(t, w.Admin.Update(t.Context(), c))
	}
	publish("east", "default", "10.21.0.0/16", "10.31.0.0/16")
	publish("hub-1", "default", "10.22.0.0/16", "10.32.0.0/16")
	require.Equal(t, cli.ExitDone, w.subctl(t, "clusterset remove default west --force").code)
	require.Equal(t, cli.ExitDone, w.subctl(t, "clusterset add prod west").code)
	publish("west", "prod", "10.21.7.0/24", "10.33.0.0/16")

	const conflict = "clusters east and west both have 10.21.7.0/24, so that cluster hub-1 could reach only one of them"
	before := w.state(t)
	r := w.subctl(t, "clusterset add prod hub-1 --dry-run")
	require.Equal(t, cli.ExitTrouble, r.code)
	require.Contains(t, r.stderr, conflict)
	r = w.subctl(t, "clusterset add prod hub-1")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr, conflict)
	require.Equal(t, before, w.state(t))
	require.Equal(t, cli.ExitDone, w.subctl(t, "clusterset add prod hub-1 --force").code)
	r = w.subctl(t, "clusterset add prod hub-1")
	require.Equal(t, cli.ExitDone, r.code, "it is no new conflict: %s", r.stderr)
	r = w.subctl(t, "clusterset add prod east")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr, "clusters east and west both have 10.21.7.0/24, so that they cannot be connected")

	t.Log("a cluster that publishes nothing has the networks of its grant")
	granted := w.account(t, "west").Annotations[submarinerv1.GrantAnnotation]
	g, err := brokertest.Administrator().Public().Grant(granted)
	require.NoError(t, err)
	require.Equal(t, cli.ExitDone, w.subctl(t, "clusterset remove prod west --force").code)
	publish("hub-1", "default", g.Networks[0].String(), "10.32.0.0/16")
	r = w.subctl(t, "clusterset add default west")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr,
		fmt.Sprintf("clusters hub-1 and west both have %v, so that they cannot be connected", g.Networks[0]))
	require.Equal(t, cli.ExitDone, w.subctl(t, "clusterset add prod west --force").code)
	publish("west", "prod", "10.21.7.0/24", "10.33.0.0/16")

	t.Log("the address of a gateway is in the network of another cluster")
	e := brokertest.InSlot(brokertest.Endpoint(w.NS, "east", "10-0-0-1"), "east", 0)
	e.Spec.PrivateIP = "10.33.5.9"
	require.NoError(t, w.Admin.Create(t.Context(), e))
	publish("west", "prod", "10.23.7.0/24", "10.33.0.0/16")
	r = w.subctl(t, "clusterset add prod east")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr, "clusters east and west both have 10.33.5.9/32, so that they cannot be connected")
	require.NoError(t, w.Admin.Delete(t.Context(), e))

	t.Log("clusterset can knows it, too")
	require.Equal(t, cli.ExitDone, w.subctl(t, "clusterset add prod east --force").code)
	r = w.subctl(t, "clusterset can east west")
	require.Equal(t, cli.ExitDone, r.code, "no conflict: %s%s", r.stdout, r.stderr)
	publish("west", "prod", "10.21.7.0/24", "10.33.0.0/16")
	r = w.subctl(t, "clusterset can east west")
	require.Equal(t, cli.ExitTrouble, r.code)
	require.Contains(t, r.stdout,
		"none: clusters east and west both have 10.21.7.0/24, so that they cannot be connected")
	require.Contains(t, r.stderr, "to connect them, join one of them again with other networks")
	require.Equal(t, cli.ExitDone, w.subctl(t, "clusterset remove prod east --force").code)

	t.Log("a cluster with a global network reaches nobody who announces what it uses itself")
	require.Equal(t, cli.ExitDone, w.subctl(t, "clusterset remove prod hub-1 --force").code)
	c := &submarinerv1.Cluster{}
	require.NoError(t,
		w.Admin.Get(t.Context(), client.ObjectKey{Namespace: broker.NamespaceIn(w.NS, "default"), Name: "hub-1"}, c))
	c.Spec.GlobalCIDR = []string{"242.0.0.0/16"}
	c.Spec.ClusterCIDR = []string{"10.33.7.0/24"}
	require.NoError(t, w.Admin.Update(t.Context(), c))
	r = w.subctl(t, "clusterset add prod hub-1")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr, "clusters hub-1 and west both have 10.33.7.0/24, so that they cannot be connected")
}
