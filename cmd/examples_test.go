package cmd

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/brokertest"
	"subctl/internal/cli"
	"subctl/internal/kubetest"
	"subctl/internal/wake"
	"subctl/sdewan"
	"subctl/sdewan/install"
)

// exampleChanges are the examples that do not run as they are, because no agents run, with
// the flag that is added. All others do.
var exampleChanges = []struct{ command, flag, why string }{
	{"subctl deploy-broker --context hub --broker-url ", "--dry-run", "the address does not exist"},
	{"subctl join ", "--wait=false", "it waits for the agents"},
	{"subctl export service ", "--wait=false", "no agent allocates addresses"},
	{"subctl rotate-key ", "--dry-run", "see examplesAtLast"},
	{"subctl uninstall ", "--dry-run", "the examples after it need the cluster: see examplesAtLast"},
	{"subctl revoke ", "--dry-run", "the examples after it need the cluster and the join file: see examplesAtLast"},
	{"subctl broker remove ", "--dry-run", "the examples after it need the broker: see examplesAtLast"},
	{"subctl gateway add ", "--wait=false", "no agents run"},
	{"subctl gateway drain ", "--dry-run", "there is one gateway"},
	{"subctl gateway remove ", "--dry-run", "no agent drains it"},
	{"subctl sdewan install ", "--wait=false", "no controller runs"},
	{"subctl show connections --wait ", "--timeout 1s", "no gateway does what the policies decide"},
	{"subctl cable-policy adopt ", "--force", "no agent signs policies"},
}

// examplesAtLast are the examples that run as they are after all others. The example of uninstall
// whose broker is gone is not among them: a cluster leaves once.
var examplesAtLast = []string{
	"subctl rotate-key --context west",
	"subctl revoke east --context hub --yes",
	"subctl revoke --join-files --context hub --yes",
	"subctl uninstall --context west --yes",
	"subctl broker remove --context hub --yes",
}

// TestExamples runs the examples of all help texts, in the order of the commands in the help
// and of the examples in a text: on a broker and two clusters, on real API servers.
func TestExamples(t *testing.T) {
	w := newExampleWorld(t)
	ran := 0
	seen := []string{}
	for _, c := range inHelpOrder(newRoot(newGlobals(genericiooptions.IOStreams{}))) {
		for _, line := range exampleLines(c.Example) {
			ran++
			seen = append(seen, line)
			w.agents(t)
			for _, change := range exampleChanges {
				if strings.HasPrefix(line+" ", change.command) && !strings.Contains(line, "--dry-run") {
					line += " " + change.flag
				}
			}
			if strings.HasPrefix(line, "subctl clusterset ") {
				w.publishGrants(t)
			}
			if strings.HasPrefix(line, "subctl sdewan explain ") || strings.HasPrefix(line, "subctl sdewan plan ") {
				w.rules(t)
			}
			code, stdout, stderr := w.run(t, line)
			w.withdrawGrants(t)
			looks := strings.Contains(line, "cable-policy list") || strings.Contains(line, "--dry-run")
			for _, command := range []string{"clusterset can", "sdewan explain", "sdewan show", "sdewan plan", "show"} {
				looks = looks || strings.HasPrefix(line, "subctl "+command+" ")
			}
			require.True(t, code == cli.ExitDone || looks && code == cli.ExitTrouble,
				"the help of %s: %s: exit code %d\n%s%s", c.CommandPath(), line, code, stdout, stderr)
			require.NotEmpty(t, stdout+stderr, line)
			goodMessages(t, line, stderr)
		}
	}
	require.Greater(t, ran, 40)
	for _, line := range examplesAtLast {
		require.Contains(t, seen, line)
		w.agents(t)
		code, stdout, stderr := w.runBesideAgents(t, line)
		require.Equal(t, cli.ExitDone, code, "%s:\n%s%s", line, stdout, stderr)
		goodMessages(t, line, stderr)
	}
	gone := w.clients["west"].Get(t.Context(),
		client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: v1alpha1.SubmarinerName},
		&v1alpha1.Submariner{})
	require.Error(t, gone, "west has left")
}

// runBesideAgents is like run, while the agents of the cluster west report: that they use its
// public key, that they are connected, and that they have cleaned their nodes.
func (w exampleWorld) runBesideAgents(t *testing.T, line string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for wake.After(ctx, 200*time.Millisecond) == nil {
			w.report(ctx)
		}
	}()
	defer func() { stop(); <-stopped }()
	return w.run(t, line)
}

// report does what the agents of west do while a command waits for them. What fails is tried again.
func (w exampleWorld) report(ctx context.Context) {
	c := w.clients["west"]
	sub := &v1alpha1.Submariner{}
	if c.Get(ctx, client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: v1alpha1.SubmarinerName},
		sub) != nil {
		return
	}
	clean := []metav1.Condition{}
	if sub.DeletionTimestamp != nil {
		clean = append(
			clean,
			metav1.Condition{
				Type:               submarinerv1.ConditionClean,
				Status:             metav1.ConditionTrue,
				Reason:             "Clean",
				LastTransitionTime: metav1.Now(),
			},
		)
	}
	self := &submarinerv1.Cluster{}
	gw := &submarinerv1.Gateway{}
	route := &submarinerv1.RouteAgent{}
	if c.Get(ctx, client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: "west"}, self) == nil {
		self.Spec.PublicKey = sub.Annotations[v1alpha1.PublicKeyAnnotation]
		_ = c.Update(ctx, self)
	}
	key := client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: "gw-1"}
	if c.Get(ctx, key, gw) == nil {
		gw.SetReportedAt(time.Now())
		gw.Status.Conditions = clean
		_ = c.Update(ctx, gw)
	}
	if c.Get(ctx, key, route) == nil {
		route.Status.Conditions = clean
		_ = c.Update(ctx, route)
	}
}

// goodMessages fails if messages contain what only programmers understand.
func goodMessages(t *testing.T, line, text string) {
	t.Helper()
	for _, bad := range []string{"*v1alpha1.", "*v1.", "v1alpha1.", "%!", "<nil>", ".go:"} {
		require.NotContains(t, text, bad, line)
	}
}

// inHelpOrder returns a command and its subcommands in the order in which its help lists them,
// except that clusterset create comes before the commands that need the clustersets, and clusterset
// delete after them, and so do sdewan install and uninstall.
func inHelpOrder(root *cobra.Command) []*cobra.Command {
	var out []*cobra.Command
	groups := append(root.Groups(), &cobra.Group{})
	out = append(out, root)
	commands := slices.Clone(root.Commands())
	if root.Name() == "clusterset" || root.Name() == "sdewan" {
		place := map[string]int{"create": -1, "delete": 1, "install": -1, "uninstall": 1}
		slices.SortStableFunc(commands,
			func(a, b *cobra.Command) int { return cmp.Compare(place[a.Name()], place[b.Name()]) })
	}
	for _, group := range groups {
		for _, c := range commands {
			if c.GroupID == group.ID && !c.Hidden {
				out = append(out, inHelpOrder(c)...)
			}
		}
	}
	return out
}

// exampleLines returns the command lines of an example.
func exampleLines(text string) []string {
	var out []string
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\\\n", " "), "\n") {
		if line = strings.Join(strings.Fields(line), " "); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

// exampleWorld is the clusters of the examples, by context.
type exampleWorld struct{ clients map[string]client.Client }

func newExampleWorld(t *testing.T) exampleWorld {
	w := exampleWorld{map[string]client.Client{}}
	merged := clientcmdapi.NewConfig()
	merged.CurrentContext = "west"
	for i, name := range []string{"hub", "west", "east"} {
		s := kubetest.Start(t)
		raw, err := clientcmd.LoadFromFile(s.Kubeconfig())
		require.NoError(t, err)
		context := raw.Contexts[raw.CurrentContext]
		merged.Clusters[name] = raw.Clusters[context.Cluster]
		merged.AuthInfos[name] = raw.AuthInfos[context.AuthInfo]
		merged.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
		w.clients[name] = s.Client(t)
		require.NoError(
			t,
			w.clients[name].Create(t.Context(), configMap("kubeadm-config", "kube-system", map[string]string{
				"ClusterConfiguration": fmt.Sprintf(
					"networking:\n  podSubnet: 10.%d.0.0/16\n  serviceSubnet: 10.%d.0.0/16\n", 20+i, 40+i),
			})),
		)
		createExportable(t, w.clients[name])
		for _, node := range []string{"gw-1", "gw-2"} {
			require.NoError(t, w.clients[name].Create(t.Context(), &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{corev1.LabelOSStable: "linux"}},
			}))
		}
	}
	t.Chdir(t.TempDir())
	require.NoError(t, clientcmd.WriteToFile(*merged, "kubeconfig"))
	kubeconfig, err := filepath.Abs("kubeconfig")
	require.NoError(t, err)
	t.Setenv("KUBECONFIG", kubeconfig)
	t.Setenv("HOME", t.TempDir())
	require.NoError(
		t,
		os.WriteFile(
			"secure.yaml",
			[]byte(
				"kind: CablePolicies\nmetadata: {name: from-a-file}\nspec: {leftClusterSelector: {env: lab}, cableDriver: {name: wireguard}}\n"),
			0o600,
		),
	)
	const sites = "hubs: [{name: hq, address: 192.0.2.10, networks: [10.30.0.0/24]}]\n" +
		"branches: [{name: berlin, networks: [192.168.1.0/24]}]\n"
	require.NoError(t, os.WriteFile("sites.yaml", []byte(sites), 0o600))
	return w
}

// rules creates the CNF and the rules of examples. No webhook runs.
func (w exampleWorld) rules(t *testing.T) {
	t.Helper()
	c := w.clients["west"]
	require.NoError(
		t,
		client.IgnoreNotFound(
			c.Delete(t.Context(),
				&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: install.WebhookName}}),
		),
	)
	cnf := install.CNF{
		Name:      "edge",
		Namespace: "default",
		Purpose:   "cnf-1",
		Image:     "example",
		Networks:  []install.Network{{Name: "wan1"}},
		Plugin:    install.Multus,
		Uplinks: map[string]sdewan.Uplink{
			"wan1": {Gateway: netip.MustParseAddr("198.51.100.1")},
		},
		AccountSecret: "a",
		CertSecret:    "c",
	}
	deployment, err := cnf.Deployment()
	require.NoError(t, err)
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name:      name,
			Namespace: "default",
			Labels:    map[string]string{sdewan.PurposeLabel: "cnf-1"},
		}
	}
	policy := &batch.Mwan3Policy{
		ObjectMeta: meta("balance1"),
		Spec:       batch.Mwan3PolicySpec{Members: []batch.Mwan3PolicyMember{{Network: "wan1"}}},
	}
	rule := &batch.Mwan3Rule{
		ObjectMeta: meta("http-rule"),
		Spec:       batch.Mwan3RuleSpec{Policy: "balance1", Proto: "tcp", DestPort: "80"},
	}
	for _, obj := range []client.Object{deployment, policy, rule} {
		brokertest.Eventually(t, func() bool { // the API server does not notice at once that the webhooks are gone
			return client.IgnoreAlreadyExists(c.Create(t.Context(), obj)) == nil
		})
	}
}

// run runs a command line. With --watch, it is interrupted after its first output.
func (w exampleWorld) run(t *testing.T, line string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	g := newGlobals(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
	if strings.Contains(line, "--watch") {
		g.Out = writer(func(text []byte) (int, error) {
			interrupt()
			return out.Write(text)
		})
	}
	code = run(ctx, g, shellWords(strings.TrimPrefix(line, "subctl ")))
	return code, out.String(), errOut.String()
}

// agents does what the agents of the joined clusters do, as far as the examples depend on it,
// and keeps the nodes Ready.
func (w exampleWorld) agents(t *testing.T) {
	t.Helper()
	for name, c := range w.clients {
		nodes := &corev1.NodeList{}
		require.NoError(t, c.List(t.Context(), nodes))
		for _, n := range nodes.Items {
			was := n.DeepCopy()
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.89.1." + n.Name[3:]}}
			n.Status.Conditions = []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()},
			}
			require.NoError(t, c.Status().Patch(t.Context(), &n, client.MergeFrom(was)))
		}
		key := client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: v1alpha1.SubmarinerName}
		if name == "hub" || c.Get(t.Context(), key, &v1alpha1.Submariner{}) != nil {
			continue
		}
		prepared := inNamespace(cablePolicy("of-"+name, "site=one | site=two | ipsec"), submarinerv1.OperatorNamespace)
		require.NoError(t, client.IgnoreAlreadyExists(c.Create(t.Context(), prepared)))
		share(t, c)
		w.publish(t, name)
		remote := map[string]string{"west": "east", "east": "west"}[name]
		for id, maker := range map[string]string{name: "", remote: remote} {
			for _, obj := range clusterObjects(submarinerv1.OperatorNamespace, maker, id, "env=production",
				"vxlan,wireguard,ipsec", "default") {
				if x, ok := obj.(*submarinerv1.Cluster); ok {
					x.Spec.ClusterCIDR = []string{}
					x.Spec.ServiceCIDR = []string{}
					x.Spec.GlobalCIDR = []string{}
				}
				require.NoError(t, client.IgnoreAlreadyExists(c.Create(t.Context(), obj)))
			}
		}
		address := &submarinerv1.GlobalIngressIP{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}}
		address.Spec = submarinerv1.GlobalIngressIPSpec{
			Target:     submarinerv1.TargetClusterIPService,
			ServiceRef: &corev1.LocalObjectReference{Name: "web"},
		}
		require.NoError(t, client.IgnoreNotFound(c.Delete(t.Context(), address.DeepCopy())))
		require.NoError(t, c.Create(t.Context(), address))
		address.Status.AllocatedIP = "242.1.0.9"
		require.NoError(t, c.Status().Update(t.Context(), address))
		route := &submarinerv1.RouteAgent{ObjectMeta: named("gw-1")}
		route.Status.RemoteEndpoints = []submarinerv1.RemoteEndpoint{}
		route.Status.Node = &submarinerv1.NodeFacts{
			PrivateIP:    "10.89.1.1",
			Device:       "eth0",
			MTU:          1500,
			Network:      "10.89.1.0/24",
			PodIP:        "10.244.1.1",
			PodIPPlanned: true,
		}
		require.NoError(t, client.IgnoreAlreadyExists(c.Create(t.Context(), route)))
		gw := gateway(name, "gw-1", 0, connection(submarinerv1.Connected, endpoint(remote, "gw", "172.18.0.9")))
		gw.Annotations[submarinerv1.TimestampAnnotation] = strconv.FormatInt(time.Now().Unix(), 10)
		require.NoError(t, client.IgnoreNotFound(c.Delete(t.Context(), gw.DeepCopy())))
		require.NoError(t, c.Create(t.Context(), gw))
	}
}

// publishGrants publishes the grants of the clusters on the broker, which the administrator renews.
func (w exampleWorld) publishGrants(t *testing.T) {
	t.Helper()
	for _, name := range []string{"east", "west"} {
		sub := &v1alpha1.Submariner{}
		require.NoError(
			t,
			w.clients[name].Get(t.Context(),
				client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: v1alpha1.SubmarinerName}, sub),
		)
		w.annotate(t, name, sub.Annotations[submarinerv1.GrantAnnotation])
	}
}

// withdrawGrants ends what publishGrants does: to the other examples, these clusters have published
// nothing.
func (w exampleWorld) withdrawGrants(t *testing.T) {
	t.Helper()
	for _, name := range []string{"east", "west"} {
		w.annotate(t, name, "")
	}
}

// annotate sets the grant that a cluster has published on the broker. It does nothing if the
// cluster is not there.
func (w exampleWorld) annotate(t *testing.T, name, grant string) {
	t.Helper()
	published := &submarinerv1.Cluster{}
	if w.clients["hub"].Get(t.Context(), client.ObjectKey{Namespace: submarinerv1.BrokerNamespace, Name: name},
		published) != nil {
		return
	}
	was := published.DeepCopy()
	if brokertest.Annotate(published, submarinerv1.GrantAnnotation, grant); grant == "" {
		delete(published.Annotations, submarinerv1.GrantAnnotation)
	}
	require.NoError(t, w.clients["hub"].Patch(t.Context(), published, client.MergeFrom(was)))
}

// publish copies the policies that were created in a cluster to the broker.
func (w exampleWorld) publish(t *testing.T, name string) {
	t.Helper()
	var list v1alpha1.CablePoliciesList
	require.NoError(t, w.clients[name].List(t.Context(), &list, client.InNamespace(submarinerv1.OperatorNamespace)))
	own := client.MatchingLabels{submarinerv1.ClusterIDLabel: name}
	require.NoError(
		t,
		w.clients["hub"].DeleteAllOf(t.Context(), &v1alpha1.CablePolicies{},
			client.InNamespace(submarinerv1.BrokerNamespace), own),
	)
	for i, p := range list.Items {
		if submarinerv1.IsCopy(&p) {
			continue
		}
		onBroker := &v1alpha1.CablePolicies{
			ObjectMeta:         metav1.ObjectMeta{Name: p.Name, Namespace: submarinerv1.BrokerNamespace},
			ConnectionPolicies: p.ConnectionPolicies,
		}
		require.NoError(t, client.IgnoreNotFound(w.clients["hub"].Delete(t.Context(), onBroker.DeepCopy())))
		onBroker.Labels = own
		brokertest.InSlot(onBroker, name, i)
		// The API server counts the objects for the quota, and can be too late to do so.
		require.NoError(t, retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
			return w.clients["hub"].Create(t.Context(), onBroker.DeepCopy())
		}))
	}
}
