package cmd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/internal/cli"
	"subctl/sdewan"
)

// sdewanWorld is a cluster with a CNF of two pods, one of which is ready, and rules: one in sync,
// one that waits, and one for a CNF that does not exist.
func sdewanWorld() world {
	meta := func(name, purpose string, second int) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: name, Namespace: "default", Labels: map[string]string{sdewan.PurposeLabel: purpose}, Generation: 1,
			CreationTimestamp: metav1.NewTime(time.Date(2026, 3, 1, 11, 0, second, 0, time.UTC)),
		}
	}
	applied := func(ok bool, reason, message string) batch.RuleStatus {
		s := batch.RuleStatus{
			InSync:             ok,
			ObservedGeneration: 1,
			Conditions: []metav1.Condition{
				{Type: batch.ConditionApplied, Status: metav1.ConditionFalse, Reason: reason, Message: message},
			},
		}
		if ok {
			at := metav1.NewTime(time.Date(2026, 3, 1, 11, 30, 0, 0, time.UTC))
			s.AppliedVersion = "41"
			s.AppliedTime = &at
			s.Conditions[0].Status = metav1.ConditionTrue
		}
		return s
	}
	pod := func(name string, ready corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: meta(name, "cnf-1", 0),
			Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}
	}
	cnf := &appsv1.Deployment{
		ObjectMeta: meta("edge", "cnf-1", 0),
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(2))},
	}
	cnf.Spec.Template.Labels = map[string]string{
		sdewan.PurposeLabel: "cnf-1",
		sdewan.AccountLabel: "edge-account",
		sdewan.CertLabel:    "edge-cert",
	}
	cnf.Spec.Template.Annotations = map[string]string{
		sdewan.NetworksAnnotation: `{"type": "ovn4nfv", "interface": [{"interface": "net0", "name": "lan", "ipAddress": "192.168.1.254/24"}, {"interface": "net1", "name": "wan1", "ipAddress": "198.51.100.10/24", "gatewayipAddress": "198.51.100.1"}]}`,
	}
	policy := &batch.Mwan3Policy{ObjectMeta: meta("balance1", "cnf-1", 1), Status: applied(true, "Applied", "")}
	policy.Spec.Members = []batch.Mwan3PolicyMember{{Network: "wan1", Metric: "1", Weight: "2"}}
	rule := &batch.Mwan3Rule{
		ObjectMeta: meta("http-rule", "cnf-1", 2),
		Status:     applied(false, "NotReady", "1 of 2 pods are ready: wait for edge-b"),
	}
	rule.Spec = batch.Mwan3RuleSpec{Policy: "balance1", DestPort: "80", Proto: "tcp"}
	lost := &batch.FirewallZone{ObjectMeta: meta("lan1", "nowhere", 3)}
	lost.Spec.Network = []batch.NetworkName{"lan"}
	status := &batch.CNFStatus{ObjectMeta: meta("edge", "cnf-1", 0)}
	at := metav1.NewTime(time.Date(2026, 3, 1, 11, 59, 30, 0, time.UTC))
	status.Status.AppliedTime = &at
	status.Status.Information = []batch.CNFInformation{
		{
			Name:      "edge-a",
			Namespace: "default",
			Purpose:   "cnf-1",
			Node:      "n1",
			IP:        "10.0.0.1",
			Status:    `[{"name":"wan","status":{"interfaces":{"net1":{"status":"online"},"net2":{"status":"offline"}}}},{"name":"ipsec","status":{"InitConnection":"success","details":[{"connection":"hub-a","up":1,"connecting":0}],"remotes":[{"name":"hub","state":"ESTABLISHED","virtual_ips":["172.12.0.30"],"leases":["172.12.1.5"],"connections":[{"name":"a","up":true}]}]}},{"name":"conntrack","status":[{},{}]}]`,
		},
		{Name: "edge-b", Namespace: "default", Purpose: "cnf-1", Error: "no answer within 5 s"},
	}
	controller := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: sdewan.ControllerName, Namespace: sdewan.Namespace},
		Status:     appsv1.DeploymentStatus{ReadyReplicas: 1},
	}
	return world{
		"west": []client.Object{
			controller,
			cnf,
			pod("edge-a", corev1.ConditionTrue),
			pod("edge-b", corev1.ConditionFalse),
			policy,
			rule,
			lost,
			status,
		},
	}
}

// Containers that an earlier subctl rendered with --flow-table run on after an upgrade, and their
// log names the flag.
func TestAgentCNFIgnoresFlowTable(t *testing.T) {
	r := runIn(t, sdewanWorld(), []string{"west"}, "agent", "cnf", "--flow-table")
	require.Contains(t, r.stderr, "--password-file is missing") // the next mistake
	require.Contains(t, r.stderr, "--flow-table has no effect: CNFs have no flow table any more")
	require.NotContains(t, runIn(t, sdewanWorld(), []string{"west"}, "agent", "cnf", "--help").stdout, "flow-table")
}

func TestSdewan(t *testing.T) {
	for name, line := range map[string]string{
		"sdewan_rules":           "sdewan show rules",
		"sdewan_rules_json":      "sdewan show rules -A -o json",
		"sdewan_cnfs":            "sdewan show cnfs",
		"sdewan_status":          "sdewan show status -o wide",
		"sdewan_plan":            "sdewan plan cnf-1",
		"sdewan_plan_offline":    "sdewan plan edge --offline wan1,wan9",
		"sdewan_plan_none":       "sdewan plan cnf-2",
		"sdewan_explain":         "sdewan explain http-rule",
		"sdewan_explain_policy":  "sdewan explain mwan3policy/balance1",
		"sdewan_explain_no_cnf":  "sdewan explain FirewallZone/lan1 -o yaml",
		"sdewan_explain_none":    "sdewan explain http-ruel",
		"sdewan_nothing":         "sdewan show rules -n other",
		"sdewan_render":          "sdewan cnf render edge --purpose cnf-1 --networks lan=192.168.1.254/24,wan1 --uplinks wan1=198.51.100.1 --account-secret edge-account --cert-secret edge-cert --image example/subctl:v1",
		"sdewan_render_firewall": "sdewan cnf render edge --purpose cnf-1 --networks lan=192.168.1.254/24,wan1 --uplinks wan1=198.51.100.1 --account-secret edge-account --cert-secret edge-cert --image example/subctl:v1 --firewall",
		"sdewan_render_several":  "sdewan cnf render edge --purpose cnf-1 --networks lan,wan1 --replicas 2 --priority-class site --account-secret edge-account --cert-secret edge-cert --image example/subctl:v1",
		"sdewan_render_mistakes": "sdewan cnf render Edge --purpose a/b --networks lan,lan,wan1=1.2.3.4/24 --replicas 2 --plugin x --priority-class A_b",
	} {
		t.Run(name,
			func(t *testing.T) { golden(t, name, runIn(t, sdewanWorld(), []string{"west"}, shellWords(line)...)) })
	}
}

// Without a controller, nothing updates what is shown.
func TestSdewanWithoutController(t *testing.T) {
	w := sdewanWorld()
	for _, noun := range []string{"rules", "cnfs", "status"} {
		controller := w["west"][0].(*appsv1.Deployment)
		controller.Status.ReadyReplicas = 0
		r := runIn(t, w, []string{"west"}, "sdewan", "show", noun, "-n", "other")
		require.Equal(t, cli.ExitTrouble, r.code, noun)
		require.Contains(t, r.stderr,
			"no pod of the controller is ready, so what is shown may be old: look at the pods in namespace sdewan-system",
			noun)
		r = runIn(t, world{"west": w["west"][1:]}, []string{"west"}, "sdewan", "show", noun, "-n", "other")
		require.Equal(t, cli.ExitTrouble, r.code, noun)
		require.Contains(t, r.stderr,
			`there is no controller (Deployment sdewan-system/sdewan-controller), so what is shown may be old: run "subctl sdewan install"`,
			noun)
	}
}

// The help names every kind of rules.
func TestSdewanHelpHasKinds(t *testing.T) {
	for _, k := range sdewan.Kinds() {
		require.Contains(t, sdewanLong, k.GVK.Kind)
	}
}

// numbered returns items of a list with the numbers from 1 to n.
func numbered(format string, n int) string {
	var items []string
	for i := range n {
		items = append(items, fmt.Sprintf(format, i+1))
	}
	return strings.Join(items, ",")
}

// The command line of each is wrong, and says so before a cluster is contacted.
func TestSdewanMistakes(t *testing.T) {
	for line, want := range map[string]string{
		"sdewan plan":                         "the name of the CNF is missing: subctl sdewan plan CNF",
		"sdewan explain a b":                  `subctl sdewan explain takes one argument: omit "b"`,
		"sdewan show rules -n a -A":           "--namespace and --all-namespaces both choose the namespaces",
		"sdewan show rules -n A":              `--namespace "A" is not a valid namespace`,
		"sdewan install --replicas 0":         "0 replicas of the controller and the webhooks: use 1 to 5",
		"sdewan install -o yaml":              "--output requires --dry-run",
		"sdewan uninstall --contexts a":       "subctl sdewan uninstall has no --contexts: rules belong to one cluster",
		"sdewan cnf render edge --networks a": "--purpose is missing",
		"sdewan cnf render edge --purpose a":  "a CNF needs at least one network",
		"sdewan cnf render --purpose a":       "the name of the Deployment is missing",
		"sdewan sites list.yaml":              "--directory is missing",
		"sdewan sites":                        "the name of the file is missing",
		"sdewan sites /none -d a":             "unknown shorthand flag",
		"sdewan explain a/b/c":                `there is no kind of rules "a": use one of Mwan3Policy, Mwan3Rule, FirewallZone, FirewallForwarding, FirewallRule, FirewallSNAT, FirewallDNAT, IpsecProposal, IpsecSite, IpsecHost, NetworkFirewallRule, CNFService, CNFNAT, CNFRoute, CNFRouteRule, in KIND/NAME`,
		"sdewan explain Mwan3Rul/http-rule":   `in KIND/NAME; did you mean "Mwan3Rule"?`,
		"sdewan explain Mwan3Rule/":           `the name of the rule is missing after "Mwan3Rule/"`,
		"sdewan install --image ''":           "--image is empty: specify a value",
		"sdewan install --replicas x":         `invalid argument "x" for "--replicas" flag: use a whole number`,
		"sdewan cnf render edge --purpose a --networks a --image x --firewall": "--firewall needs --uplinks",
		"sdewan cnf render E_x --purpose a --networks a": `name "E_x" must consist of lower case letters, digits and '-', and begin and end with a letter or digit` +
			"\n",
		"sdewan cnf render " + strings.Repeat("e", 60) +
			" --purpose a --networks a": `name "` + strings.Repeat("e", 60) + `" is too long for the Secret ` +
			strings.Repeat("e", 60) +
			"-account: choose a shorter name, of at most 55 characters, or set --account-secret and --cert-secret\n",
		"sdewan cnf render e --purpose a --networks a --image 'a b'":                                     `image "a b" is not the name of an image: invalid reference format: specify REGISTRY/REPOSITORY:TAG, such as registry.example/subctl:v1`,
		"sdewan cnf render e --purpose a --networks a=1.2.3.0/24":                                        `--networks: network "a": 1.2.3.0 is no address of a host in 1.2.3.0/24: use the address of the pod`,
		"sdewan cnf render e --purpose a --networks a=1.2.3.255/24":                                      `--networks: network "a": 1.2.3.255 is no address of a host`,
		"sdewan cnf render e --purpose a --networks a=1.2.3.4":                                           `--networks: network "a": "1.2.3.4" is not an IPv4 address with the length of its network`,
		"sdewan cnf render e --purpose a --networks a=1.2.3.4/24,b=1.2.3.5/25":                           `networks "a" (1.2.3.4/24) and "b" (1.2.3.5/25) overlap`,
		"sdewan cnf render e --purpose a --networks a=1.2.3.4/24 --uplinks a=1.2.4.1":                    `uplink "a": the router 1.2.4.1 is not in the network 1.2.3.0/24`,
		"sdewan cnf render e --purpose a --networks a=1.2.3.4/24 --uplinks a=1.2.3.4":                    `uplink "a": 1.2.3.4 is the address of the CNF itself`,
		"sdewan cnf render e --purpose a --networks a --uplinks b=1.2.3.4":                               `uplink "b" is none of the networks`,
		"sdewan cnf render e --purpose a --networks a --uplinks a":                                       `use NETWORK=GATEWAY, such as wan1=198.51.100.1`,
		"sdewan cnf render e --purpose a --networks a --track a=1.1.1.1":                                 `--track: "a" is not an uplink: add it to --uplinks`,
		"sdewan cnf render e --purpose a --networks a --uplinks a=1.2.3.4 --track a=1.1.1.1,a=1.1.1.1":   `--track: a=1.1.1.1 is listed twice`,
		"sdewan cnf render e --purpose a --networks a --uplinks a=1.2.3.4 --down -1":                     "--down -1 must be from 1 to 3600",
		"sdewan cnf render e --purpose a --networks a --uplinks a=1.2.3.4 --interval 5 --ping-timeout 0": "--interval has no effect without --track, the hosts that the CNF pings\n--ping-timeout 0 must be from 1 to 3600",
		"sdewan cnf render e --purpose a --networks a --node-selector 'a b=c'":                           `node selector "a b"="c" is not a label of nodes, such as kubernetes.io/hostname=node-1`,

		"sdewan cnf render " + strings.Repeat("e", 60) +
			" --purpose a --networks a --account-secret x": `-cert: choose a shorter name, of at most 58 characters`,
		"sdewan cnf render " + strings.Repeat("e", 64) +
			" --purpose a --networks a": `has 64 characters: use at most 63` + "\n",
		"sdewan cnf render e --purpose a --networks a --account-secret '' --cert-secret ''": "--account-secret is empty: specify a value (is a variable not set?)\n--cert-secret is empty: specify a value (is a variable not set?)\n",
		"sdewan cnf render e --purpose a --networks =1.2.3.4/24":                            `--networks: the name of a network is empty in "=1.2.3.4/24": use NAME or NAME=ADDRESS/BITS`,
		"sdewan cnf render e --purpose a --networks a=127.0.0.1/8":                          `--networks: network "a": 127.0.0.0/8 has addresses that no host can have`,
		"sdewan cnf render e --purpose a --networks a=0.0.0.1/8":                            `0.0.0.0/8 has addresses that no host can have`,
		"sdewan cnf render e --purpose a --networks a=224.0.0.1/4":                          `224.0.0.0/4 has addresses that no host can have`,
		"sdewan cnf render e --purpose a --networks a=240.0.0.1/8":                          `240.0.0.0/8 has addresses that no host can have`,
		"sdewan cnf render e --purpose a --networks a=10.0.0.1/0":                           `0.0.0.0/0 has addresses that no host can have`,
		"sdewan cnf render e --purpose a --networks a=1.2.3.4/24 --uplinks a=1.2.3.0":       `uplink "a": 1.2.3.0 is no address of a host in 1.2.3.0/24: use the address of the router`,
		"sdewan cnf render e --purpose a --networks a=1.2.3.4/24 --uplinks a=1.2.3.255":     `uplink "a": 1.2.3.255 is no address of a host in 1.2.3.0/24`,
		"sdewan cnf render e --purpose a --networks a --uplinks a=0.0.0.0":                  `--uplinks: uplink "a": "0.0.0.0" is not the IPv4 address of its router`,
		"sdewan cnf render e --purpose a --networks a --uplinks " +
			numbered("u%d=1.2.3.4", 61): "--uplinks: 61 uplinks are too many: use at most 60",
		"sdewan cnf render e --purpose a --networks a --uplinks a=1.2.3.4 --track a=127.0.0.1": `--track: "a": "127.0.0.1" is not the IPv4 address of a host`,
		"sdewan cnf render e --purpose a --networks a --uplinks a=1.2.3.4 --track " +
			numbered("a=1.1.1.%d", 17): "--track: a=1.1.1.17 is one host too many: use at most 16 for an uplink",
		"sdewan cnf render e --purpose a --networks a,b=1.2.3.4/24 --uplinks a=1.2.4.1 --track a=1.2.3.4": "--track: a=1.2.3.4 is the address of the CNF itself, which always answers: use another host",
		"sdewan show rules --context nope":   `there is no context "nope" in the kubeconfig: it has west`,
		"sdewan show rules --namespace=-foo": `--namespace "-foo" is not a valid namespace: use at most 63 lower case letters, digits and '-', with a letter or digit at both ends`,
	} {
		r := runIn(t, world{}, []string{"west"}, shellWords(line)...)
		require.Equal(t, cli.ExitUsage, r.code, "%s: %s", line, r.stderr)
		require.Contains(t, r.stderr, want, line)
		require.Empty(t, r.stdout, line)
	}
}

// The shell completes names of rules, CNFs and networks.
func TestSdewanCompletions(t *testing.T) {
	for line, want := range map[string]string{
		"sdewan explain ''":                  "Mwan3Policy/balance1\nMwan3Rule/http-rule\nFirewallZone/lan1\n:4\n",
		"sdewan explain http-rule ''":        ":4\n",
		"sdewan explain -n other ''":         ":4\n",
		"sdewan plan ''":                     "cnf-1\n:4\n",
		"sdewan plan cnf-1 --offline ''":     "lan\nwan1\n:4\n",
		"sdewan plan cnf-1 --offline wan1,":  "wan1,lan\n:4\n",
		"sdewan show rules -o ''":            "table\nwide\njson\nyaml\n:4\n",
		"sdewan cnf render edge --plugin ''": "multus\novn4nfv\n:4\n",
		"sdewan cnf render edge -o ''":       "yaml\njson\n:4\n",
		"sdewan cnf render ''":               ":4\n",
		"sdewan uninstall --dry-run -o ''":   "table\njson\nyaml\n:4\n",
	} {
		r := runIn(t, sdewanWorld(), []string{"west"}, append([]string{"__complete"}, shellWords(line)...)...)
		require.Equal(t, want, r.stdout, "%s: %s", line, r.stderr)
	}
}
