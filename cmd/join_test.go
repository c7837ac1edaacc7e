package cmd

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/cluster"
	"subctl/internal/cli"
	"subctl/internal/kubetest"
)

// joinWorld is a broker and a cluster to be joined, on API servers of their own.
// No agents run: nobody waits for them.
type joinWorld struct {
	hub, member   *kubetest.Server
	hubC, memberC client.Client
	file          string
	psk           string
}

func newJoinWorld(t *testing.T) *joinWorld {
	w := &joinWorld{hub: kubetest.Start(t), member: kubetest.Start(t)}
	w.hubC, w.memberC = w.hub.Client(t), w.member.Client(t)
	objs, err := broker.Render(broker.Options{
		Namespace:   submarinerv1.BrokerNamespace,
		Components:  []string{broker.Connectivity},
		CableDriver: "vxlan",
		Sets:        []string{"prod"},
	})
	require.NoError(t, err)
	require.NoError(t, broker.Apply(t.Context(), w.hubC, objs))
	w.file = w.invite(t, time.Hour)
	require.NoError(t, w.memberC.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "coredns"},
		Data:       map[string]string{"Corefile": corefile},
	}))
	for name, cidr := range map[string]string{"n1": "10.111.1.0/24", "n2": "10.111.2.0/24"} {
		w.node(t, name, cidr)
	}
	return w
}

// corefile is the configuration of the member's DNS before it joins.
const corefile = ".:53 {\n    errors\n    forward . /etc/resolv.conf\n    cache 30\n    reload\n    loadbalance\n}\n"

// readCorefile returns the configuration of the member's DNS.
func (w *joinWorld) readCorefile(t *testing.T) string {
	t.Helper()
	cm := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "coredns"}
	require.NoError(t, w.memberC.Get(t.Context(), key, cm))
	return cm.Data["Corefile"]
}

// invite writes a join file whose token lives for ttl.
func (w *joinWorld) invite(t *testing.T, ttl time.Duration) string {
	t.Helper()
	hub := &v1alpha1.Broker{}
	require.NoError(
		t,
		w.hubC.Get(t.Context(), client.ObjectKey{Namespace: submarinerv1.BrokerNamespace, Name: v1alpha1.BrokerName},
			hub),
	)
	w.psk = strings.Repeat("psk-of-the-tests", 3)
	f, err := broker.Invite(t.Context(), w.hubC, hub, broker.Invitation{
		URL:           w.hub.Config().Host,
		CA:            w.hub.Config().CAData,
		PSK:           broker.Secret(w.psk),
		Administrator: brokertest.Key("administrator"),
		TTL:           ttl,
	})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), broker.JoinFileName)
	_, err = f.WriteFile(path, time.Now())
	require.NoError(t, err)
	return path
}

// node makes a Ready node with a pod network.
func (w *joinWorld) node(t *testing.T, name, cidr string) {
	t.Helper()
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux"}},
		Spec:       corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}},
	}
	require.NoError(t, w.memberC.Create(t.Context(), n))
	was := n.DeepCopy()
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.89.1." + name[1:]}}
	require.NoError(t, w.memberC.Status().Patch(t.Context(), n, client.MergeFrom(was)))
}

// heartbeat makes the nodes Ready: without kubelets, Kubernetes doubts it soon.
func (w *joinWorld) heartbeat(t *testing.T) {
	t.Helper()
	nodes := &corev1.NodeList{}
	require.NoError(t, w.memberC.List(t.Context(), nodes))
	for _, n := range nodes.Items {
		was := n.DeepCopy()
		n.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()},
		}
		require.NoError(t, w.memberC.Status().Patch(t.Context(), &n, client.MergeFrom(was)))
	}
}

// run runs subctl against the member, whose kubeconfig is named unless args do.
func (w *joinWorld) run(t *testing.T, args ...string) result {
	t.Helper()
	return w.runWith(t, t.Context(), nil, args...)
}

func (w *joinWorld) runWith(t *testing.T, ctx context.Context, change func(*globals), args ...string) result {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	w.heartbeat(t)
	var stdout, stderr bytes.Buffer
	g := newGlobals(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr})
	if change != nil {
		change(g)
	}
	if !strings.Contains(strings.Join(args, " "), "--kubeconfig") {
		args = append(args, "--kubeconfig", w.member.Kubeconfig())
	}
	code := run(ctx, g, args)
	r := result{code, w.scrub(stdout.String()), w.scrub(stderr.String())}
	require.NotContains(t, r.stdout+r.stderr, w.psk, "a secret is shown")
	return r
}

// scrub replaces what differs from run to run.
func (w *joinWorld) scrub(s string) string {
	for _, rule := range [][2]string{
		{w.hub.Config().Host, "https://hub:6443"},
		{strings.TrimPrefix(w.hub.Config().Host, "https://"), "hub:6443"},
		{w.member.Config().Host, "https://member:6443"},
		{filepath.Dir(w.file) + "/", ""},
	} {
		s = strings.ReplaceAll(s, rule[0], rule[1])
	}
	// see api/crds
	s = regexp.MustCompile(
		`(?ms)(^kind: CustomResourceDefinition$.*?)^spec:.*?^---$`).ReplaceAllString(s, "$1(spec)\n---")
	s = tokenName.ReplaceAllString(s, "-token-(random)")
	s = regexp.MustCompile(`brokerK8sCA: \S+`).ReplaceAllString(s, "brokerK8sCA: (base64)")
	// the API server chooses it
	s = regexp.MustCompile(`forward \. 10\.96\.[0-9.]+`).ReplaceAllString(s, "forward . 10.96.0.53")
	s = regexp.MustCompile(`cluster-uid: \S+`).ReplaceAllString(s, "cluster-uid: (uid)")
	return regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`).ReplaceAllString(s, "(time)")
}

// tokenName is the end of the name of a token's Secret.
var tokenName = regexp.MustCompile(`-token-[0-9a-f]{32}`)

// state lists what join could change on both servers, so that an untouched world
// is one with the same state. What Kubernetes makes in its own time is left out.
func (w *joinWorld) state(t *testing.T) string {
	t.Helper()
	var out []string
	for side, c := range map[string]client.Client{"hub": w.hubC, "member": w.memberC} {
		for _, kind := range []schema.GroupVersionKind{
			{Version: "v1", Kind: "ServiceAccount"},
			{Version: "v1", Kind: "Secret"},
			{Version: "v1", Kind: "Namespace"},
			{Version: "v1", Kind: "Node"},
			{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
			{Group: "apps", Version: "v1", Kind: "DaemonSet"},
			{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		} {
			l := &metav1.PartialObjectMetadataList{}
			l.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
			require.NoError(t, c.List(t.Context(), l))
			for _, o := range l.Items {
				name := o.Namespace + "/" + o.Name
				if !strings.HasPrefix(name, "kube-") && !strings.HasSuffix(name, "/default") &&
					!strings.HasPrefix(name, "/system:") &&
					!strings.HasPrefix(o.Labels["kubernetes.io/bootstrapping"], "rbac") {
					out = append(
						out,
						strings.Join(
							[]string{side, kind.Kind, name, string(o.UID), strings.Join(keysOf(o.Labels), ",")}, " "),
					)
				}
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func keysOf(m map[string]string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if k != "kubernetes.io/legacy-token-last-used" { // set by the API server some time after the use
			out = append(out, k+"="+m[k])
		}
	}
	return out
}

func TestJoinAndUninstall(t *testing.T) {
	w := newJoinWorld(t)
	_, err := broker.AddMember(t.Context(), w.hubC, submarinerv1.BrokerNamespace, "taken", "uid-of-another-cluster",
		broker.Reservation{})
	require.NoError(t, err)
	before := w.state(t)

	t.Run("dry run", func(t *testing.T) {
		golden(t, "join_dryrun", w.run(t, "join", w.file, "--clusterid", "west", "--image", "localhost/subctl:test",
			"--cluster-labels", "zone=eu,tier=gold", "--dry-run", "-o", "yaml"))
		golden(t, "join_dryrun_diff",
			w.run(t, "join", w.file, "--clusterid", "west", "--image", "localhost/subctl:test", "--dry-run"))
		require.Equal(t, before, w.state(t), "a dry run changed something")
	})
	t.Run("mistakes change nothing", func(t *testing.T) { w.mistakes(t); require.Equal(t, before, w.state(t)) })
	t.Run("in clustersets that do not exist yet", w.createsSets)
	t.Run("enough rights", w.enough)
	t.Run("interrupted", w.interrupted)
	t.Run("join",
		func(t *testing.T) { golden(t, "join", w.run(t, "join", w.file, "--clusterid", "west", "--wait=false")) })

	key := &corev1.Secret{}
	require.NoError(t,
		w.memberC.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.ClusterKeySecret}, key))
	sub := &v1alpha1.Submariner{}
	require.NoError(t,
		w.memberC.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: "submariner"}, sub))
	require.Equal(t, "10.111.0.0/22", sub.Spec.ClusterCIDR)
	require.Equal(t, string(key.Data[cluster.KeyPublic]), sub.Annotations[v1alpha1.PublicKeyAnnotation])
	trusted := &corev1.Secret{}
	require.NoError(t,
		w.memberC.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.TrustSecret}, trusted))
	require.Equal(t, string(trusted.Data[cluster.KeyGrant]), sub.Annotations[submarinerv1.GrantAnnotation])
	require.Equal(t, "generic", sub.Status.NetworkPlugin)
	require.Contains(t, w.readCorefile(t), corefile+"# submariner-begin")
	w.statusForUpstream(t)

	t.Run("join again", func(t *testing.T) {
		after := w.state(t)
		golden(t, "join_again", w.run(t, "join", w.file, "--clusterid", "west", "--wait=false"))
		require.Equal(t, after, w.state(t), "nothing changes, not even the token")
		again := &corev1.Secret{}
		require.NoError(t, w.memberC.Get(t.Context(), client.ObjectKeyFromObject(key), again))
		require.Equal(t, key.Data, again.Data, "the cluster's key must survive")
	})
	t.Run("join again keeps what somebody has set", w.keeps)
	t.Run("join again, where the key has no seed and the token is not good",
		func(t *testing.T) { w.repairs(t, key.DeepCopy()) })
	t.Run("join again right after a revocation", w.rejoins)
	t.Run("joined as somebody else", func(t *testing.T) {
		golden(t, "join_renamed", w.run(t, "join", w.file, "--clusterid", "ost", "--wait=false"))
	})
	t.Run("wait says what is not up", func(t *testing.T) {
		r := w.run(t, "join", w.file, "--clusterid", "west", "--wait", "--timeout", "5s")
		require.Equal(t, cli.ExitTrouble, r.code)
		require.Contains(t, r.stderr, "DaemonSet submariner-routeagent: pod submariner-routeagent-")
		require.Contains(t, r.stderr, "DaemonSet submariner-gateway: pod submariner-gateway-")
		require.Contains(t, r.stderr, " on node n1: not scheduled yet")
		require.Contains(t, r.stderr, "out of time")
	})
	t.Run("join again, with more to publish", w.reserves)
	t.Run("rotate the key", w.rotate)
	w.policies(t)
	w.uninstall(t)
	require.Equal(t, before, w.state(t), "uninstall must leave what was there before")
	require.Equal(t, corefile, w.readCorefile(t))
	left := &v1alpha1.CablePoliciesList{}
	require.NoError(t, w.hubC.List(t.Context(), left))
	var names []string
	for _, p := range left.Items {
		names = append(names, p.Name)
	}
	require.Equal(t,
		[]string{
			"kept", "taken.0", "taken.1", "taken.2", "taken.3", "taken.4", "taken.5", "taken.6", "taken.7", "theirs",
		},
		names)
}

// reserves has a cluster join again that has more policies and gateways than are reserved for it.
func (w *joinWorld) reserves(t *testing.T) {
	reserved := func(list client.ObjectList, prefix string) (n int) {
		t.Helper()
		require.NoError(
			t,
			w.hubC.List(t.Context(), list, client.InNamespace(submarinerv1.BrokerNamespace),
				client.MatchingLabels{submarinerv1.ClusterIDLabel: "west"}),
		)
		require.NoError(t, meta.EachListItem(list, func(o runtime.Object) error {
			if strings.HasPrefix(o.(client.Object).GetName(), prefix) {
				n++
			}
			return nil
		}))
		return n
	}
	counts := func() [2]int {
		return [2]int{reserved(&submarinerv1.EndpointList{}, "west."), reserved(&v1alpha1.CablePoliciesList{}, "west.")}
	}
	require.Equal(t, [2]int{4, 8}, counts())
	var made []client.Object
	for i := range 10 {
		made = append(made, cablePolicy(fmt.Sprint("own-", i), " |  | ipsec"))
	}
	made = append(made, copied(cablePolicy("theirs.east.default", " |  | ipsec"), "east", "default"))
	for i := 3; i < 8; i++ {
		made = append(made, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name:   fmt.Sprint("n", i),
			Labels: map[string]string{corev1.LabelOSStable: "linux", submarinerv1.GatewayNodeLabel: "true"},
		}})
	}
	for _, o := range made {
		require.NoError(t, w.memberC.Create(t.Context(), o))
	}
	r := w.run(t, "join", w.file, "--clusterid", "west", "--wait=false")
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.Equal(t, [2]int{6, 10}, counts(), "one for each gateway node, and for each policy that was made here")
	for _, o := range made {
		require.NoError(t, w.memberC.Delete(t.Context(), o))
	}
}

func (w *joinWorld) uninstall(t *testing.T) {
	w.refuses(t)
	golden(t, "uninstall_dryrun", w.run(t, "uninstall", "--dry-run"))
	asJSON := w.run(t, "uninstall", "--dry-run", "-o", "json")
	require.Contains(t, asJSON.stdout,
		"\n  {\n    \"action\": \"delete CustomResourceDefinition routeagents.submariner.io\",\n    \"dryRun\": true\n  },\n")
	require.Contains(t, asJSON.stderr, " ✓ dry run: nothing is changed\n")
	golden(t, "uninstall", w.run(t, "uninstall", "--yes"))
}
