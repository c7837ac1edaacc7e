package cmd

import (
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	file "gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/cable/drivers"
	"subctl/internal/cli"
	"subctl/policy"
)

// clusterObjects are a cluster and its one gateway, in a namespace; maker is empty for
// the cluster's own.
func clusterObjects(ns, maker, id, labels, offers string, sets ...string) []client.Object {
	c := &submarinerv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: id, Namespace: ns, Labels: map[string]string{}},
		Spec:       submarinerv1.ClusterSpec{ClusterID: id},
	}
	for pair := range strings.SplitSeq(labels, ",") {
		k, v, _ := strings.Cut(pair, "=")
		c.Labels[k] = v
	}
	if len(sets) > 0 {
		c.Annotations = map[string]string{submarinerv1.ClusterSetsAnnotation: strings.Join(sets, ",")}
	}
	e := &submarinerv1.Endpoint{
		ObjectMeta: metav1.ObjectMeta{Name: id + "-cable", Namespace: ns, Labels: map[string]string{}},
		Spec:       endpoint(id, "gw", "172.18.0.9"),
	}
	key := make([]byte, 32)
	copy(key, id)
	c.Spec.PublicKey = base64.StdEncoding.EncodeToString(key)
	e.Spec.BackendConfig = map[string]string{submarinerv1.BackendDrivers: offers, "publicKey": c.Spec.PublicKey}
	if maker != "" {
		c.Labels[submarinerv1.ClusterIDLabel] = maker
		e.Labels[submarinerv1.ClusterIDLabel] = maker
	}
	if offers == "" {
		return []client.Object{c}
	}
	return []client.Object{c, e}
}

// cablePolicy is a policy of one rule, "left | right | driver".
func cablePolicy(name, rule string) *v1alpha1.CablePolicies {
	parts := strings.Split(rule, " | ")
	left, _ := policy.ParseSelector(parts[0])
	right, _ := policy.ParseSelector(parts[1])
	return &v1alpha1.CablePolicies{
		ObjectMeta: named(name),
		ConnectionPolicies: []v1alpha1.CablePolicySpec{
			{LeftClusterSelector: left, RightClusterSelector: right, CableDriver: parts[2]},
		},
	}
}

// copied makes a policy the copy of one that another cluster made.
func copied(p *v1alpha1.CablePolicies, maker, set string) *v1alpha1.CablePolicies {
	p.Labels = map[string]string{submarinerv1.ClusterIDLabel: maker, submarinerv1.ClusterSetLabel: set}
	return p
}

// shared makes a policy one that was made here, and is on the broker.
func shared(p *v1alpha1.CablePolicies, sets ...string) *v1alpha1.CablePolicies {
	p.Status = v1alpha1.CablePoliciesStatus{
		ClusterSets: sets,
		Conditions:  []metav1.Condition{{Type: v1alpha1.ConditionShared, Status: metav1.ConditionTrue}},
	}
	return p
}

func inNamespace[T client.Object](o T, ns string) T {
	o.SetNamespace(ns)
	return o
}

func configMap(name, ns string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}, Data: data}
}

// inSet returns the namespace of a clusterset on a broker.
func inSet(ns, set string) *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{submarinerv1.ClusterSetLabel: set}},
	}
}

// policyWorlds are the clusters of which policies are shown and changed: west, which
// shares two clustersets with others; hub, the broker; and what is neither.
func policyWorlds() world {
	const op, all = submarinerv1.OperatorNamespace, "vxlan,wireguard,ipsec"
	west := submariner("west")
	west.Spec.ClusterSets = []string{"default", "blue"}
	member := []client.Object{
		west,
		copied(cablePolicy("default", " |  | vxlan"), submarinerv1.BrokerID, "default"),
		copied(cablePolicy("default.blue", " |  | wireguard"), submarinerv1.BrokerID, "blue"),
		copied(cablePolicy("east-cloud.east.default", "tier=core | env=cloud | ipsec"), "east", "default"),
		shared(cablePolicy("secure", "env=production | env=production,!test | wireguard"), "blue", "default"),
		configMap("tuned", op, map[string]string{v1alpha1.CableCustomConfig: "mtu: 1300"}),
		configMap("tiny", op, map[string]string{v1alpha1.CableCustomConfig: "mtu: 13"}),
		configMap("wrong", op, map[string]string{"mtu": "1300"}),
		configMap("empty", op, nil),
	}
	member = append(member, clusterObjects(op, "", "west", "env=production,tier=edge", "vxlan,wireguard")...)
	member = append(member, clusterObjects(op, "east", "east", "env=production,tier=core", all, "default")...)
	member = append(member, clusterObjects(op, "cloud", "cloud", "env=cloud", all, "blue", "default")...)
	member = append(member, clusterObjects(op, "blue-1", "blue-1", "env=lab", "", "blue")...)
	member = append(member, clusterObjects(op, "liar", "forged", "env=production", all, "default")...)

	const base, blue = submarinerv1.BrokerNamespace, submarinerv1.BrokerNamespace + "-blue"
	maker := func(p *v1alpha1.CablePolicies, id string) *v1alpha1.CablePolicies {
		p.Labels = map[string]string{submarinerv1.ClusterIDLabel: id}
		return brokertest.InSlot(p, id, 0)
	}
	hub := []client.Object{
		&v1alpha1.Broker{
			ObjectMeta: metav1.ObjectMeta{Name: "submariner-broker", Namespace: base},
		}, inSet(base, "default"), inSet(blue, "blue"), inSet("foreign", "red"),
		inNamespace(cablePolicy("default", " |  | vxlan"),
			base), inNamespace(cablePolicy("default", " |  | wireguard"), blue),
		inNamespace(maker(cablePolicy("secure", "env=production | env=production,!test | wireguard"), "west"), base),
		inNamespace(maker(cablePolicy("secure", "env=production | env=production,!test | wireguard"), "west"), blue),
		configMap("tuned", base, map[string]string{v1alpha1.CableCustomConfig: "mtu: 1300"}),
	}
	hub = append(hub, clusterObjects(base, "west", "west", "env=production", "vxlan,wireguard")...)
	hub = append(hub, clusterObjects(base, "east", "east", "env=production", all)...)
	hub = append(hub, clusterObjects(blue, "west", "west", "env=production", "vxlan,wireguard")...)
	hub = append(hub, clusterObjects(blue, "cloud", "cloud", "env=cloud", all)...)

	mistaken := cablePolicy("mistaken", " |  | gre")
	refused := cablePolicy("secure", "env=production |  | wireguard")
	refused.Status.Conditions = []metav1.Condition{
		{
			Type:    v1alpha1.ConditionShared,
			Status:  metav1.ConditionFalse,
			Reason:  "NameTaken",
			Message: "cluster east has shared a policy of this name",
		},
	}
	untuned := shared(cablePolicy("untuned", "env=lab |  | vxlan"), "default")
	untuned.Status.Conditions = append(
		untuned.Status.Conditions,
		metav1.Condition{
			Type:    v1alpha1.ConditionAccepted,
			Status:  metav1.ConditionFalse,
			Reason:  "BadConfigMap",
			Message: "the settings copied before stay in force: there is no ConfigMap",
		},
	)
	ill := append(
		[]client.Object{
			submariner("west"),
			mistaken,
			refused,
			untuned,
			cablePolicy("fresh", "env=lab |  | wireguard"),
			copied(cablePolicy("odd", " |  | x\x1b[2J"), "east", "default"),
		},
		clusterObjects(op, "", "west", "env=production", "vxlan")...)
	ill = append(ill, clusterObjects(op, "east", "east", "env=production", "vxlan", "default")...)

	translated := []client.Object{
		submariner("west"),
		copied(cablePolicy("default", " |  | vxlan"), submarinerv1.BrokerID, "default"),
	}
	for i, id := range []string{"west", "east", "cloud"} {
		objects := clusterObjects(op, id, id, "env=production", all, "default")
		e := objects[1].(*submarinerv1.Endpoint)
		e.Spec.NATEnabled = id == "cloud"
		e.Spec.BackendConfig["vxlan-port"] = strconv.Itoa(4500 + i)
		translated = append(translated, objects...)
	}

	third := []client.Object{
		&v1alpha1.Broker{
			ObjectMeta: metav1.ObjectMeta{Name: "submariner-broker", Namespace: base},
		}, inSet(base, "default"),
		inNamespace(cablePolicy("default", " |  | ipsec"),
			base), inNamespace(maker(cablePolicy("plain", "env=production |  | vxlan"), "north"), base),
	}
	strict := submariner("north")
	strict.Spec.PoliciesFrom = v1alpha1.PoliciesFromBroker
	strictly := []client.Object{
		strict,
		copied(cablePolicy("default", " |  | ipsec"), submarinerv1.BrokerID, "default"),
		cablePolicy("plain", "env=production |  | vxlan"),
	}
	for _, id := range []string{"east", "west", "north"} {
		third = append(third, clusterObjects(base, id, id, "env=production", all)...)
		strictly = append(strictly, clusterObjects(op, id, id, "env=production", all, "default")...)
	}

	return world{
		"third": third,
		"same": append(slices.Clone(third),
			inNamespace(maker(cablePolicy("plain", "env=production |  | ipsec"), "blue-1"), base),
			inNamespace(maker(cablePolicy("default", " |  | ipsec"), "west"), base),
			inNamespace(maker(cablePolicy("default", " |  | vxlan"), "east"), base)),
		"strict":     strictly,
		"translated": translated,
		"west":       member,
		"hub":        hub,
		"ill":        ill,
		"bare":       nil,
		"alone":      {submariner("alone")},
		"other": {
			&v1alpha1.Broker{
				ObjectMeta: metav1.ObjectMeta{
					Name:        "submariner-broker",
					Namespace:   base,
					Annotations: map[string]string{broker.AdministratorAnnotation: "another key"},
				},
			},
			inSet(base, "default"),
		},
		"both": append(
			[]client.Object{
				&v1alpha1.Broker{ObjectMeta: metav1.ObjectMeta{Name: "submariner-broker", Namespace: base}},
				inSet(base, "default"),
				inNamespace(cablePolicy("default", " |  | ipsec"), base),
			},
			submariner("both"),
		),
	}
}

const shortForm = `kind: CablePolicies
metadata:
  name: cloud
spec:
  leftClusterSelector:
    env: cloud
  rightClusterSelector:
    env: !cloud
  cableDriver:
    name: LibreSwan
---
apiVersion: submariner.io/v1alpha1
kind: CablePolicies
metadata: {name: tuned, labels: {submariner-io/clusterID: elsewhere}, resourceVersion: "7"}
spec:
- leftClusterSelector: {matchExpressions: [{key: env, operator: In, values: [lab, production]}]}
  name: vxlan
  options: {metadata: {name: tuned}}
status: {conditions: []}
`

// TestCablePolicy prints what the commands say, of stderr behind a bar, and what they
// wrote: "context: args".
func TestCablePolicy(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	file("deep.yaml", "kind: CablePolicies\nmetadata: {name: deep}\nspec: [{name: vxlan}]\n")
	file("good.yaml", shortForm)
	file("bad.yaml",
		"kind: CablePolicies\nmetadata: {name: A}\nspec: [{name: gre, leftClusterSelector: {matchExpressions: [{key: a, operator: Gt}]}}]\n---\nkind: CablePolicies\nmetadata: {name: a}\nspec: [{name: vxlan}]\n---\nkind: CablePolicies\nmetadata: {name: a}\nspec: [{name: vxlan}]\n")
	file("form.yaml", "kind: CablePolicies\nmetadata: {name: a}\nspec: {cableDrivers: {}}\n")
	file(
		"maps.yaml",
		"kind: ConfigMap\nmetadata: {name: deep}\ndata: {CableCustomConfig: \"mtu: 1250\"}\n---\nkind: ConfigMap\nmetadata: {name: stray}\ndata: {CableCustomConfig: \"mtu: 1250\"}\n---\n"+
			"kind: CablePolicies\nmetadata: {name: deep}\nspec: [{name: vxlan, leftClusterSelector: {matchLabels: {env: lab}}, options: {metadata: {name: deep}}}]\n",
	)
	file("retuned.yaml",
		"kind: ConfigMap\nmetadata: {name: tuned}\ndata: {CableCustomConfig: \"mtu: 1250\"}\n---\nkind: CablePolicies\nmetadata: {name: deep}\nspec: [{name: vxlan, options: {metadata: {name: tuned}}}]\n")
	file("seed.yaml",
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: cable-driver-config\n  namespace: Submariner-operator\ndata:\n  CableCustomConfig: |\n    vxlanID: 100\n---\nkind: CablePolicies\nmetadata: {name: seed}\nspec: {cableDriver: {name: vxlan, options: {metadata: {name: cable-driver-config}}}}\n")
	file("badmaps.yaml",
		"kind: ConfigMap\nmetadata: {name: A}\ndata: {x: \"mtu: 1250\"}\n---\nkind: CablePolicies\nmetadata: {name: a}\nspec: [{name: vxlan, options: {metadata: {name: A}}}]\n")
	file("kubectl.yaml",
		"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: kube-root-ca.crt, uid: x}\n  data: {ca.crt: PEM}\n- apiVersion: submariner.io/v1alpha1\n  kind: CablePolicies\n  metadata: {name: fetched, uid: y}\n  spec: [{name: vxlan}]\n")
	file("place.yaml",
		"kind: CablePolicies\nmetadata: {name: a, namespace: elsewhere}\nspec: [{name: vxlan, options: {metadata: {name: x, namespace: y}}}]\n")
	home, err := os.Getwd()
	require.NoError(t, err)
	t.Chdir(dir)
	writeKeys(t, broker.JoinFileName)
	outs := map[string]*strings.Builder{}
	for _, line := range []string{
		"west: list",
		"west: list -o wide",
		"west: list -o json",
		"hub: list -o wide",
		"ill: list",
		"bare: list",
		"alone: list",
		"alone: list -o json",
		"both: list",
		"both: list --broker",
		"west: list --broker",
		"hub: list --kubecontext west",
		"hub: list --context west --kubecontext hub",
		"west: explain east west",
		"west: explain west east -o json",
		"west: explain cloud east",
		"west: explain blue-1 east",
		"west: explain west cloud",
		"west: explain blue-1 cloud",
		"west: explain east wst",
		"west: explain east nirvana",
		"west: explain east",
		"west: explain east east",
		"ill: explain east west",
		"alone: explain alone x",
		"west: add",
		"west: add --name Lab --cable-driver gre --left-cluster-selector env==,b=_",
		"west: add --name lab",
		"west: add --cable-driver vxlan",
		"west: add --name x --cable-driver wiregard --right-cluster-selector env>5",
		"west: add --name x --cable-driver vxlan --encryption required",
		"west: add --name x --cable-driver ipsec --encryption maybe",
		"west: add --name x --cable-driver ipsec --left-cluster-selector env=cloud --right-cluster-selector tier=core --encryption required",
		"west: add --name secure --cable-driver ipsec --cable-config missing --clusterset green",
		"west: add --name x --cable-driver ipsec --cable-config empty",
		"west: add --name east-cloud --cable-driver ipsec --left-cluster-selector env=cloud --right-cluster-selector tier=core",
		"west: add --name a --cable-driver ipsec --cable-config wrong",
		"west: add --name a --cable-driver ipsec --cable-config tiny",
		"west: add --name default --cable-driver ipsec --replace",
		"hub: add --name secure --cable-driver ipsec",
		"west: add -f bad.yaml",
		"west: add -f form.yaml",
		"west: add -f place.yaml",
		"west: add -f none.yaml",
		"west: add -f good.yaml --name x",
		"bare: add --name a --cable-driver vxlan",
		"west: add --name core --left-cluster-selector tier=core --cable-driver libreswan --cable-config tuned",
		"west: add --name lab --left-cluster-selector env=lab,site --cable-driver wireguard --clusterset blue",
		"west: add -f good.yaml --dry-run",
		"west: add -f good.yaml --dry-run -o yaml",
		"west: add -f good.yaml --dry-run -o json",
		"west: add -f good.yaml",
		"west: add -f good.yaml --dry-run --force",
		"west: add -f good.yaml --force",
		"west: add --replace --name secure --cable-driver ipsec --left-cluster-selector env=production --right-cluster-selector env=production",
		"west: add --replace --name secure --cable-driver vxlan --left-cluster-selector env=production --right-cluster-selector env=production --force",
		"hub: add --name unsigned --cable-driver vxlan --broker-info none.subm",
		"hub: add --name unsigned --cable-driver vxlan --broker-info none.subm --dry-run",
		"other: add --name secure --cable-driver ipsec",
		"hub: add --name tuned --cable-driver vxlan --cable-config tuned",
		"hub: add --replace --name default --cable-driver ipsec --clusterset blue",
		"west: add --name set --left-cluster-selector env=cloud --cable-driver vxlan --cable-config tuned --dry-run",
		"west: add --name east-cloud2 --left-cluster-selector env=cloud --right-cluster-selector tier=core --cable-driver wireguard",
		"west: add --name all --left-cluster-selector submariner-io/clusterID --right-cluster-selector submariner-io/clusterID,!test --cable-driver ipsec --dry-run",
		"west: add --name to-east --right-cluster-selector submariner-io/clusterID=east --cable-driver wireguard --dry-run",
		"west: add --name to-east --right-cluster-selector submariner-io/clusterID=east --cable-driver wireguard --dry-run --clusterset default",
		"west: add --name to-none --right-cluster-selector submariner-io/clusterID=north --cable-driver wireguard --dry-run",
		"west: add --name a-lab --left-cluster-selector env=cloud --right-cluster-selector tier=core --cable-driver wireguard --dry-run",
		"translated: list",
		"translated: explain west cloud",
		"translated: explain west east",
		"translated: add --name plain --cable-driver vxlan",
		"translated: add --name safe --cable-driver wireguard --dry-run",
		"west: delete",
		"west: delete --name nothing",
		"alone: delete --name nothing",
		"west: delete --name east-cloud",
		"hub: delete --name secure",
		"west: delete --name default",
		"west: delete --name secure --clusterset blue",
		"west: delete --name secure --clusterset nosuch",
		"west: delete --name secur",
		"hub: delete --name default --clusterset bleu",
		"hub: delete --name default",
		"hub: delete --name default --clusterset blue --dry-run",
		"hub: delete --name default --clusterset blue",
		"west: adopt",
		"west: adopt secure",
		"bare: adopt secure",
		"hub: adopt secure --dry-run",
		"hub: adopt nothing",
		"hub: adopt --from west --clusterset blue",
		"hub: adopt secure --from west",
		"hub: adopt default",
		"same: adopt plain",
		"same: adopt default --from west",
		"same: adopt default --from east --force",
		"hub: adopt --from east",
		"both: adopt --from x --broker",
		"third: list",
		"third: explain east west",
		"third: explain east north",
		"third: adopt plain --dry-run",
		"third: adopt plain",
		"third: adopt plain --force",
		"strict: list",
		"strict: explain east north",
		"strict: add plain2 --cable-driver ipsec",
		"strict: add plain2 --cable-driver ipsec --dry-run",
		"strict: delete plain",
		"west: delete --name secure --dry-run",
		"west: delete --name secure",
		"west: delete --name secure --force",
		"west: delete secure --dry-run",
		"west: delete secure --name secure",
		"west: add secure --cable-driver ipsec",
		"west: add secure -f good.yaml",
		"west: add -f maps.yaml --force",
		"hub: add -f maps.yaml --clusterset blue",
		"west: add -f maps.yaml -f good.yaml --dry-run -o yaml",
		"west: add -f maps.yaml -f maps.yaml",
		"west: add -f maps.yaml -f deep.yaml",
		"west: add -f badmaps.yaml",
		"west: add -f kubectl.yaml --dry-run",
		"west: add -f retuned.yaml",
		"west: add -f retuned.yaml --replace --force",
		"west: add -f seed.yaml",
		"west: add -f /dev/zero",
		"west: delete secure --dry-run -o yaml",
		"west: delete secure -o json --force",
	} {
		context, args, _ := strings.Cut(line, ": ")
		verb, _, _ := strings.Cut(args, " ")
		if outs[verb] == nil {
			outs[verb] = &strings.Builder{}
		}
		out := outs[verb]
		w := policyWorlds()
		g, stdout, stderr := testGlobals(t, w, append([]string{context}, slices.Sorted(maps.Keys(w))...)...)
		code := run(t.Context(), g, append([]string{"cable-policy"}, strings.Fields(args)...))
		fmt.Fprintf(out, "# %s: subctl cable-policy %s\n%s", context, args, stdout)
		for l := range strings.Lines(stderr.String()) {
			fmt.Fprintf(out, "| %s", l)
		}
		for _, l := range append(changedMaps(t, g, context, w[context]), changed(t, g, context, w[context])...) {
			fmt.Fprintf(out, "=> %s\n", l)
		}
		fmt.Fprintf(out, "exit code %d\n\n", code)
	}
	for verb, out := range outs {
		goldenText(t, filepath.Join(home, "testdata", "cable_policy", verb+".txt"), out.String())
	}
}

// changed says how a cluster's policies differ from what they were.
func changed(t *testing.T, g *globals, context string, before []client.Object) []string {
	t.Helper()
	cfg, err := g.RestConfigFor(context)
	require.NoError(t, err)
	c, err := g.Connect(t.Context(), cfg)
	require.NoError(t, err)
	var list v1alpha1.CablePoliciesList
	require.NoError(t, c.List(t.Context(), &list))
	was := map[string]string{}
	for _, o := range before {
		if p, ok := o.(*v1alpha1.CablePolicies); ok {
			was[p.Namespace+"/"+p.Name] = described(p)
		}
	}
	var out []string
	for _, p := range list.Items {
		key := p.Namespace + "/" + p.Name
		if now := described(&p); was[key] != now {
			out = append(out, key+": "+now)
		}
		delete(was, key)
	}
	for _, key := range slices.Sorted(maps.Keys(was)) {
		out = append(out, key+": gone")
	}
	return out
}

// changedMaps says which ConfigMaps a cluster has that it did not have.
func changedMaps(t *testing.T, g *globals, context string, before []client.Object) []string {
	t.Helper()
	cfg, err := g.RestConfigFor(context)
	require.NoError(t, err)
	c, err := g.Connect(t.Context(), cfg)
	require.NoError(t, err)
	var list corev1.ConfigMapList
	require.NoError(t, c.List(t.Context(), &list))
	var out []string
	for _, cm := range list.Items {
		same := func(o client.Object) bool {
			was, ok := o.(*corev1.ConfigMap)
			return ok && was.Namespace == cm.Namespace && was.Name == cm.Name && maps.Equal(was.Data, cm.Data)
		}
		if !slices.ContainsFunc(before, same) {
			out = append(out, fmt.Sprintf("%s/%s: %q", cm.Namespace, cm.Name, cm.Data))
		}
	}
	return out
}

func described(p *v1alpha1.CablePolicies) string {
	var rules []string
	for _, r := range p.ConnectionPolicies {
		text := policy.SelectorText(r.LeftClusterSelector) + " | " + policy.SelectorText(r.RightClusterSelector) +
			" | " + r.CableDriver
		if o := r.CableOptions; o != nil {
			text += fmt.Sprintf(" | %s/%s %q", o.Metadata.Namespace, o.Metadata.Name, o.Data)
		}
		rules = append(rules, text)
	}
	return fmt.Sprintf("%s %v", strings.Join(rules, "; "), p.Labels)
}

// goldenText compares a text with a file.
func goldenText(t *testing.T, name, got string) {
	t.Helper()
	path, err := filepath.Abs(name)
	require.NoError(t, err)
	file.Assert(t, got, path)
}

// What the command line says counts more than the environment, under either name.
func TestKubecontext(t *testing.T) {
	for variable, flag := range map[string]string{
		"SUBCTL_CONTEXT":     "--kubecontext",
		"SUBCTL_KUBECONTEXT": "--context",
	} {
		t.Setenv(variable, "bare")
		got := runIn(t, policyWorlds(), []string{"bare", "hub"}, "cable-policy", "list", flag, "hub")
		require.Contains(t, got.stdout, "west", variable)
		t.Setenv(variable, "")
	}
}

func TestCablePolicyCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"west explain ":            "blue-1 cloud east west",
		"west explain east ":       "blue-1 cloud west",
		"west explain east west ":  "",
		"west delete --name ":      "secure",
		"west delete ":             "secure",
		"west delete secure ":      "",
		"west add --name ":         "secure",
		"west add --cable-config ": "tiny tuned",
		"hub add --cable-config ":  "tuned",

		"hub delete --name ":        "default",
		"west delete --clusterset ": "blue default",
		"west add --cable-driver ":  strings.ReplaceAll(drivers.Names(), ",", ""),
		"west list --kubecontext ":  "alone bare both hub ill other same strict third translated west",
		"hub adopt ":                "secure",
		"hub adopt --from ":         "cloud east west",
		"bare explain ":             "",
		"bare delete --name ":       "",
	} {
		context, args, _ := strings.Cut(line, " ")
		w := policyWorlds()
		words := append([]string{"__complete", "cable-policy"}, strings.Split(args, " ")...)
		got := runIn(t, w, append([]string{context}, slices.Sorted(maps.Keys(w))...), words...)
		values, _, _ := strings.Cut(got.stdout, ":")
		require.Equal(t, want, strings.Join(strings.Fields(values), " "), line)
	}
}

// TestCablePolicyFilesRoundTrip feeds -f with what commands print, from stdin and from files.
func TestCablePolicyFilesRoundTrip(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "source.yaml")
	require.NoError(
		t,
		os.WriteFile(
			source,
			[]byte("kind: ConfigMap\nmetadata: {name: deep}\ndata: {CableCustomConfig: \"mtu: 1250\"}\n---\n"+
				"kind: CablePolicies\nmetadata: {name: deep}\nspec: [{name: vxlan, leftClusterSelector: {matchLabels: {env: lab}}, options: {metadata: {name: deep}}}]\n"),
			0o600,
		),
	)
	direct := addFrom(t, "", "-f", source)
	require.Len(t, direct, 2)
	for _, format := range []string{"json", "yaml"} {
		printed := runIn(t, policyWorlds(), []string{"west"}, "cable-policy", "add", "-f", source, "--force",
			"--dry-run", "-o", format)
		require.Equal(t, cli.ExitDone, printed.code, printed.stderr)
		require.Contains(t, printed.stdout+printed.stderr, "dry run: nothing is changed")
		if format == "json" {
			require.Contains(t, printed.stdout, `"dryRun": true`)
		} else {
			require.Contains(t, printed.stdout, "# dry run: nothing is changed\n")
		}
		require.Equal(t, direct, addFrom(t, printed.stdout, "-f", "-"), format)

		deleted := runIn(t, policyWorlds(), []string{"west"}, "cable-policy", "delete", "secure", "--force", "-o",
			format)
		require.Equal(t, cli.ExitDone, deleted.code, deleted.stderr)
		require.NotContains(t, deleted.stdout, "dryRun")
		require.Empty(t, addFrom(t, deleted.stdout, "-f", "-", "--replace"), "it is as it was")
	}
	// What kubectl prints of a copy of another cluster's policy becomes a policy of its own.
	copied := "apiVersion: v1\nkind: List\nitems:\n- apiVersion: submariner.io/v1alpha1\n  kind: CablePolicies\n  metadata: {name: lab.blue, namespace: submariner-operator, labels: {submariner-io/clusterID: cloud, submariner.io/clusterset: blue}, annotations: {kubectl.kubernetes.io/last-applied-configuration: x}}\n  spec: [{name: vxlan, leftClusterSelector: {matchLabels: {env: lab}}}]\n"
	require.Equal(t, []string{`submariner-operator/lab: env=lab | any | vxlan map[submariner.io/clusterset:blue]`},
		addFrom(t, copied, "-f", "-"))
}

// addFrom runs cable-policy add in cluster west and returns what changed.
func addFrom(t *testing.T, stdin string, args ...string) []string {
	t.Helper()
	w := policyWorlds()
	g, _, stderr := testGlobals(t, w, "west")
	g.In = strings.NewReader(stdin)
	code := run(t.Context(), g, append([]string{"cable-policy", "add", "--force"}, args...))
	require.Equal(t, cli.ExitDone, code, stderr.String())
	return append(changedMaps(t, g, "west", w["west"]), changed(t, g, "west", w["west"])...)
}
