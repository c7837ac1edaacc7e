package view

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/internal/kube"
	"subctl/sdewan"
	"subctl/sdewan/rest"
)

const networks = `{"type": "ovn4nfv", "interface": [{"interface": "net0", "name": "lan", "ipAddress": "192.168.1.254/24"}, ` +
	`{"interface": "net1", "name": "wan1", "ipAddress": "198.51.100.10/24", "gatewayipAddress": "198.51.100.1"}]}`

// metaOf returns the metadata of an object that was created in a second of a minute.
func metaOf(name, purpose string, second int) metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Name:              name,
		Namespace:         "site",
		Generation:        1,
		CreationTimestamp: metav1.NewTime(time.Date(2026, 3, 1, 11, 0, second, 0, time.UTC)),
	}
	if purpose != "" {
		m.Labels = map[string]string{sdewan.PurposeLabel: purpose}
	}
	return m
}

// aCNF returns a CNF in which nothing is wrong, with a pod that is ready.
func aCNF(name, purpose string) CNF {
	c := CNF{Deployment: appsv1.Deployment{ObjectMeta: metaOf(name, purpose, 0)}}
	c.Deployment.Spec.Template.Labels = map[string]string{
		sdewan.PurposeLabel: purpose,
		sdewan.AccountLabel: "account",
		sdewan.CertLabel:    "cert",
	}
	c.Deployment.Spec.Template.Annotations = map[string]string{sdewan.NetworksAnnotation: networks}
	c.Pods = []corev1.Pod{
		{
			ObjectMeta: metaOf(name+"-a", purpose, 0),
			Status: corev1.PodStatus{
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			},
		},
	}
	return c
}

func aPolicy() *batch.Mwan3Policy {
	return &batch.Mwan3Policy{
		ObjectMeta: metaOf("p", "one", 1),
		Spec:       batch.Mwan3PolicySpec{Members: []batch.Mwan3PolicyMember{{Network: "wan1"}}},
	}
}

// Whether a rule is in sync is what its status says, unless the status is about something else than
// what is there now.
func TestState(t *testing.T) {
	applied := func(p *batch.Mwan3Policy) {
		at := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
		p.Status = batch.RuleStatus{InSync: true, ObservedGeneration: 1, AppliedVersion: "41", AppliedTime: &at}
	}
	for name, test := range map[string]struct {
		change func(*View, *batch.Mwan3Policy)
		reason string
		text   string
	}{
		"in sync": {
			func(*View, *batch.Mwan3Policy) {},
			"",
			"in sync: all pods have version 41 since 2026-03-01T12:00:00Z",
		},
		"changed": {
			func(_ *View, p *batch.Mwan3Policy) { p.Generation = 2 },
			"Changed",
			"the controller has not applied the change yet",
		},
		"no report": {
			func(_ *View, p *batch.Mwan3Policy) { p.Status = batch.RuleStatus{} },
			"NotApplied",
			"namespace sdewan-system",
		},
		"deleted": {
			func(_ *View, p *batch.Mwan3Policy) { p.DeletionTimestamp = &metav1.Time{} },
			"Deleting",
			"it is being removed from the pods of its CNF",
		},
		"no label": {func(_ *View, p *batch.Mwan3Policy) { p.Labels = nil }, "NoPurpose", "set the label"},
		"no CNF":   {func(v *View, _ *batch.Mwan3Policy) { v.CNFs = nil }, "NoCNF", "waits for one"},
		"other place": {
			func(_ *View, p *batch.Mwan3Policy) { p.Namespace = "other" },
			"NoCNF",
			"no Deployment in namespace other",
		},
		"two CNFs": {
			func(v *View, _ *batch.Mwan3Policy) { v.CNFs = append(v.CNFs, aCNF("b", "one")) },
			"SeveralCNFs",
			"delete all but one",
		},
		"refused": {func(_ *View, p *batch.Mwan3Policy) {
			p.Status = batch.RuleStatus{
				Conditions: []metav1.Condition{
					{
						Type:    batch.ConditionApplied,
						Status:  metav1.ConditionFalse,
						Reason:  "Rejected",
						Message: "pod a-a: no",
					},
				},
			}
		}, "Rejected", "not in sync: Rejected: pod a-a: no"},
	} {
		t.Run(name, func(t *testing.T) {
			p := aPolicy()
			applied(p)
			v := &View{CNFs: []CNF{aCNF("a", "one")}, Rules: []sdewan.Rule{p}}
			test.change(v, p)
			s := v.State(p)
			require.Equal(t, test.reason, s.Reason)
			require.Equal(t, test.reason == "", s.InSync)
			require.Contains(t, s.String(), test.text)
		})
	}
}

// What is wrong with a CNF is named, with the remedy.
func TestProblems(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*appsv1.Deployment)
		want   string
	}{
		"nothing": {func(*appsv1.Deployment) {}, ""},
		"no account": {
			func(d *appsv1.Deployment) { delete(d.Spec.Template.Labels, sdewan.AccountLabel) },
			"no label cnf-account-secret",
		},
		"no certificate": {
			func(d *appsv1.Deployment) { delete(d.Spec.Template.Labels, sdewan.CertLabel) },
			"no label cnf-cert-secret",
		},
		"no label": {
			func(d *appsv1.Deployment) { delete(d.Spec.Template.Labels, sdewan.PurposeLabel) },
			"set it in spec.template",
		},
		"networks": {
			func(d *appsv1.Deployment) { d.Spec.Template.Annotations[sdewan.NetworksAnnotation] = "lan" },
			"must be JSON",
		},
		"uplinks": {func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations[sdewan.UplinksAnnotation] = `{"wan1": {"intervall": 5}}`
		}, "intervall"},
		"no such uplink": {func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations[sdewan.UplinksAnnotation] = `{"wna1": {"gateway": "198.51.100.1"}}`
		}, `uplink "wna1", which is no network of its pods`},
		"a pod": {func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(2)) }, "1 of 2 pods are ready"},
	} {
		c := aCNF("a", "one")
		test.change(&c.Deployment)
		got := (&View{CNFs: []CNF{c}}).Problems(c)
		if test.want == "" {
			require.Empty(t, got, name)
			continue
		}
		require.Len(t, got, 1, name)
		require.Contains(t, got[0], test.want, name)
	}
	two := &View{CNFs: []CNF{aCNF("a", "one"), aCNF("b", "one")}}
	require.Contains(t, strings.Join(two.Problems(two.CNFs[0]), "\n"),
		"2 Deployments of the namespace have this purpose")
}

// A plan has what the pod's Linux holds, as far as it can be known without asking the pod: tunnels,
// and ports that lead to Services.
func TestPlan(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "site"}}
	service.Spec = corev1.ServiceSpec{
		ClusterIP:  "fd00::9",
		ClusterIPs: []string{"fd00::9", "10.96.0.9"},
		Ports:      []corev1.ServicePort{{Port: 8080, Protocol: corev1.ProtocolTCP}},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(service).Build()

	host := &batch.IpsecHost{ObjectMeta: metaOf("hub", "one", 2)}
	host.Spec.IpsecRemote = batch.IpsecRemote{Remote: "192.0.2.10", Auth: "psk", PreSharedKey: "correct-horse"}
	host.Spec.Connections = []batch.IpsecHostConnection{
		{
			IpsecConnection: batch.IpsecConnection{Name: "a", Mode: "start", RemoteSubnet: "10.30.0.0/24"},
			LocalSourceIP:   "%config",
		},
	}
	web := &batch.CNFService{
		ObjectMeta: metaOf("web", "one", 3),
		Spec:       batch.CNFServiceSpec{FullName: "web.site.svc.cluster.local", Port: "2288", DPort: "8080"},
	}
	v := &View{CNFs: []CNF{aCNF("a", "one")}, Rules: []sdewan.Rule{aPolicy(), host, web}}
	v.ReadServices(t.Context(), c)
	state, problems := v.Plan(v.CNFs[0], nil)
	require.Empty(t, problems)
	text := state.String()
	require.Contains(t, text, "remote_addrs = 192.0.2.10")
	require.NotContains(t, text, "correct-horse")
	require.Contains(t, text, "10.30.0.0/24")
	require.Contains(t, text, "dnat ip to 10.96.0.9:8080", "the IPv4 address of a Service with two")
	require.Contains(t, text, `oifname "eth0" ct status dnat ip daddr 10.96.0.9`,
		"the Service's replies come back through the CNF")

	// Each mistake once.
	v.CNFs[0].Deployment.Spec.Template.Annotations[sdewan.NetworksAnnotation] = "lan"
	v.Rules = nil
	_, problems = v.Plan(v.CNFs[0], []string{"wan9"})
	require.Len(t, problems, 1)
	require.Equal(t, 1, strings.Count(problems[0], "must be JSON"))
	require.Contains(t, problems[0], `network "wan9": the CNF is not attached to it`)
}

// A CNFService that leads nowhere is a problem of this rule.
func TestServices(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	external := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "external", Namespace: "site"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"},
	}
	headless := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "headless", Namespace: "site"},
		Spec: corev1.ServiceSpec{
			ClusterIP:  "None",
			ClusterIPs: []string{"None"},
			Ports:      []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(external, headless).Build()
	for name, want := range map[string]string{
		"web":              "there is no Service site/web: create it, or correct the name",
		"web.other.svc":    "there is no Service other/web",
		"headless":         "has no IPv4 address in the cluster",
		"headless.":        "has no IPv4 address in the cluster",
		"external":         "looks up example.org in DNS, which is not done here",
		"www.example.org":  "looks up www.example.org in DNS, which is not done here",
		"web.other.svc.eu": "looks up web.other.svc.eu in DNS",
	} {
		x := &batch.CNFService{
			ObjectMeta: metaOf("s", "one", 1),
			Spec:       batch.CNFServiceSpec{FullName: name, Port: "1", DPort: "80"},
		}
		v := &View{CNFs: []CNF{aCNF("a", "one")}, Rules: []sdewan.Rule{x}}
		v.ReadServices(t.Context(), c)
		_, problems := v.Plan(v.CNFs[0], nil)
		require.Len(t, problems, 1, name)
		require.Contains(t, problems[0], want, name)
		require.Contains(t, problems[0], "CNFService s: spec.fullname: ", name)
	}
}

// What a pod answers is shown as far as it can be understood, whatever it is.
func TestHostileStatus(t *testing.T) {
	answer := func(text, fault string) PodStatus {
		s := batch.CNFStatus{ObjectMeta: metaOf("a", "one", 0)}
		s.Status.Information = []batch.CNFInformation{{Name: "a-a", Status: text, Error: fault}}
		out := (&View{Statuses: []batch.CNFStatus{s}}).PodStatuses()
		require.Len(t, out, 1)
		require.Equal(t, "site", out[0].Namespace)
		require.Equal(t, "one", out[0].Purpose)
		return out[0]
	}
	good := answer(
		`[{"name":"wan","error":null,"status":{"interfaces":{"net2":{"status":"offline"},"net1":{"status":"online"}}}},`+
			`{"name":"ipsec","status":{"details":[{"connection":"hub-a","up":"1"},{"connection":"hub-b","up":0,"connecting":1},{"connection":"hub-c"},{"connection":"edges-d","up":0,"connecting":0,"waiting":true}],`+
			`"remotes":[{"name":"hub","message":"the key differs","connections":[{"up":false}]},{"name":"edges","connections":[{"up":false}]},{"name":"other","message":"of the last try","connections":[{"up":true}]}]}},`+
			`{"name":"conntrack","status":[{},{}]},{"name":"route","status":{"main":{"item":[{},{}]},"41":{"item":[{}]}}},{"name":"else","status":7},{"name":"rule","error":"x"}]`,
		"",
	)
	require.Equal(t, []string{"net1 online", "net2 offline"}, good.Uplinks)
	require.Equal(t, []string{"hub-a up", "hub-b connecting", "hub-c down", "edges-d waiting"}, good.Tunnels,
		"a hub to which nobody is connected has no problem")
	require.Equal(t, new(2), good.Connections)
	require.Equal(t, new(3), good.Routes)
	require.Equal(
		t,
		[]string{
			"uplink net2 is offline", "tunnel hub-b is connecting", "tunnel hub-c is down",
			"tunnels of hub: the key differs", "it cannot report rule: see its log",
		},
		good.Problems,
	)

	require.Equal(
		t,
		[]string{
			"its kernel may not hold the configuration: see its log",
			"firewall/rules r has no effect, or a part of it has none: it matches nothing",
			"objects without effect that are not listed: 1",
		},
		answer(
			`[{"name":"effect","status":{"applied":false,"no_effect":[{"collection":"firewall/rules","name":"r","reason":"it matches nothing"}],"no_effect_count":2}}]`,
			"").Problems,
	)
	require.Equal(
		t,
		[]string{
			"it forwards nothing yet: the controller has not finished its configuration: see subctl sdewan show rules, and the log of the controller",
		},
		answer(`[{"name":"effect","status":{"applied":true,"awaiting":true}}]`, "").Problems,
	)
	for _, text := range []string{
		`{}`,
		`[]`,
		`{"applied":true,"no_effect":[],"no_effect_count":7}`,
		`{"no_effect":{}}`,
		`{"applied":"no"}`,
		`{"no_effect_count":-1}`,
	} {
		require.Empty(t, answer(`[{"name":"effect","status":`+text+`}]`, "").Problems, text)
	}
	many := answer(
		`[{"name":"effect","status":{"no_effect":[`+strings.Repeat(`{"reason":"x"},`,
			100)+`{}],"no_effect_count":101}}]`,
		"",
	).Problems
	require.Len(t, many, maxIneffective+1)
	require.Equal(t, "objects without effect that are not listed: 91", many[maxIneffective])

	long := answer(
		`[{"name":"conntrack","status":"(too long)","count":10000},{"name":"route","status":"(too long)"},{"name":"neighbour","status":[{},{}]}]`,
		"")
	require.Equal(t, []string{"conntrack", "route"}, long.Cut)
	require.Equal(
		t,
		[]string{"10000 or more", "many", "2"},
		[]string{
			long.Number("conntrack", long.Connections),
			long.Number("route", long.Routes),
			long.Number("neighbour", long.Neighbours),
		},
		"what was too long to be kept is not shown as 0",
	)

	require.Equal(t, []string{"no answer"}, answer("", "no answer").Problems)
	for _, text := range []string{"", "{}", "[", `"x"`, "[" + strings.Repeat("{},", maxStatus) + "{}]"} {
		require.Equal(t, []string{"its answer is no list of modules, or was too long"}, answer(text, "").Problems,
			"%.20s", text)
	}
	for _, text := range []string{
		"null",
		"[]",
		`[{"name":"wan","status":[]},{"name":"ipsec","status":"x"},{"name":"conntrack","status":{}},{"name":"route"}]`,
	} {
		require.Empty(t, answer(text, "").Problems, text)
	}
}

// Rules are found by name, and by kind and name in any case. CNFs are found by purpose first.
func TestFind(t *testing.T) {
	zone := &batch.FirewallZone{ObjectMeta: metaOf("p", "one", 1)}
	v := &View{CNFs: []CNF{aCNF("b", "a"), aCNF("a", "b"), aCNF("c", "d")}, Rules: []sdewan.Rule{aPolicy(), zone}}
	require.Len(t, v.FindRule("p"), 2)
	for _, text := range []string{
		"FirewallZone/p",
		"firewallzone/p",
		"firewallzones/p",
		"firewallzones.batch.sdewan.akraino.org/p",
	} {
		require.Equal(t, []sdewan.Rule{zone}, v.FindRule(text), text)
	}
	require.Empty(t, v.FindRule("FirewallRule/p"))
	require.Equal(t, "b", v.Find("a")[0].Deployment.Name)
	require.Equal(t, "c", v.Find("c")[0].Deployment.Name)
	require.Empty(t, v.Find("x"))
}

// An explanation names the rules that a rule needs, that need it, and that come before it: of the
// same CNF, and of no other.
func TestExplain(t *testing.T) {
	rule := func(name, purpose string, second int) *batch.Mwan3Rule {
		return &batch.Mwan3Rule{
			ObjectMeta: metaOf(name, purpose, second),
			Spec:       batch.Mwan3RuleSpec{Policy: "p", Proto: "tcp", DestPort: "80", Sticky: "1"},
		}
	}
	p := aPolicy()
	first := rule("z", "one", 2)
	second := rule("a", "one", 3)
	other := rule("b", "two", 1)
	v := &View{CNFs: []CNF{aCNF("x", "one"), aCNF("y", "two")}, Rules: []sdewan.Rule{p, first, second, other}}
	e := v.Explain(second)
	require.Equal(t, "x", e.CNF)
	require.Equal(t, []string{"Mwan3Policy p (spec.policy): not in sync"}, e.Needs)
	require.Equal(t, []string{"Mwan3Rule z"}, e.After, "the older one, not the one with the lower name")
	require.Equal(t, "tcp from any address to any address port 80, unless an earlier rule matches", e.Matches)
	require.Contains(t, e.Does, "net1 (metric 1, weight 1); connections of a source stay with one uplink for 600 s")
	require.Equal(t, []string{"Mwan3Rule z", "Mwan3Rule a"}, v.Explain(p).UsedBy)
	require.Equal(t, []string{"Mwan3Policy p (spec.policy): does not exist"}, v.Explain(other).Needs)
}

// An explanation agrees with the plan, also for rules without src or dest, and has all conditions.
func TestExplainFirewall(t *testing.T) {
	for want, o := range map[string]rest.Object{
		"tcpudp from any address in zone lan to the CNF itself port 22: REJECT": &rest.FirewallRule{
			Src:      "lan",
			DestPort: "22",
		},
		"tcp from 192.0.2.1 in any zone to the CNF itself at 192.0.2.2: DROP": &rest.FirewallRule{
			Src:    "*",
			Proto:  "tcp",
			SrcIP:  "192.0.2.1",
			DestIP: "192.0.2.2",
			Target: "DROP",
		},
		"udp from the CNF itself port 53 to any address in zone wan: ACCEPT": &rest.FirewallRule{
			Dest:    "wan",
			Proto:   "udp",
			SrcPort: "53",
			Target:  "ACCEPT",
		},
		"all from the CNF itself to any address in any zone: REJECT": &rest.FirewallRule{
			Proto: "all",
		},
		"all from any address in zone lan to any address in any zone: REJECT": &rest.FirewallRule{
			Proto: "all",
			Src:   "lan",
			Dest:  "*",
		},
		"all from any address in zone lan to any address in any zone or the CNF itself: MARK 0x1": &rest.FirewallRule{
			Proto:   "all",
			Src:     "lan",
			Dest:    "*",
			Target:  "MARK",
			SetMark: "0x1",
		},
		"all from any address in any zone or the CNF itself to any address in zone wan: MARK 0x1/0xf": &rest.FirewallRule{
			Proto:    "all",
			Dest:     "wan",
			Target:   "MARK",
			SetXMark: "0x1/0xf",
		},
		"all from any address in zone lan to any address in any zone or the CNF itself: NOTRACK": &rest.FirewallRule{
			Proto:  "all",
			Src:    "lan",
			Dest:   "wan",
			Target: "NOTRACK",
		},
		"icmp echo-request, redirect from any address in zone lan to the CNF itself, sent by the device 02:00:00:00:00:01, without the mark 0x10, IPv4 only, and as iptables matches -m x (on OpenWrt only): REJECT": &rest.FirewallRule{
			Src:      "lan",
			Proto:    "icmp",
			ICMPType: []string{"echo-request", "redirect"},
			SrcMAC:   "02:00:00:00:00:01",
			Mark:     "!0x10",
			Family:   "ipv4",
			Extra:    "-m x",
		},
		"new connections from any zone to zone wan, IPv6 only: ACCEPT, and their replies": &rest.Forwarding{
			Src:    "*",
			Dest:   "wan",
			Family: "ipv6",
		},
		"packets from and to net1, 192.0.2.0/24, IPv4 only: to the CNF: ACCEPT; from the CNF: ACCEPT; between networks of the zone: DROP; to it: source addresses become the CNF's, of packets from 10.0.0.0/8, of packets to !10.1.0.0/16; " +
			"packets of no known connection leave to it, too; TCP segments are limited to what fits the path": &rest.Zone{
			Network:          []string{"net1"},
			Subnet:           []string{"192.0.2.0/24"},
			Family:           "ipv4",
			Forward:          "DROP",
			Masq:             "1",
			MasqSrc:          []string{"10.0.0.0/8"},
			MasqDest:         []string{"!10.1.0.0/16"},
			MasqAllowInvalid: "1",
			MTUFix:           "1",
		},
		"tcp from any address in zone wan to any address port 80,443, with the mark 0x1: the destination becomes 10.0.0.1, with the port that it has, and the packets are accepted": &rest.Redirect{
			Src:      "wan",
			Proto:    "tcp",
			SrcDPort: "80,443",
			DestIP:   "10.0.0.1",
			Mark:     "0x1",
		},
		"tcpudp from any address in zone wan to any address port 80: the destination becomes the CNF itself port 80, and the packets are accepted": &rest.Redirect{
			Src:      "wan",
			SrcDPort: "80",
		},
		"tcpudp from 10.0.0.1 to any address in zone wan: the source address becomes 192.0.2.1": &rest.Redirect{
			Src:    "lan",
			Target: "SNAT",
			SrcIP:  "10.0.0.1",
			Dest:   "wan",
			SrcDIP: "192.0.2.1",
		},
		"all from any address to any address, IPv6 only, unless an earlier rule matches: takes an uplink by policy p": &rest.Rule{
			Policy: "p",
			Family: "ipv6",
		},
		`IPsec with %any, authenticated by psk, this CNF as "hub", the remote as "edge", IKE with a: c (tunnel, start): 10.0.0.0/8 and an address that the remote assigns === the remote, ESP with b, accepted whatever zones say`: &rest.Remote{
			Gateway:      "%any",
			Auth:         "psk",
			LocalID:      "hub",
			RemoteID:     "edge",
			PreSharedKey: "secret",
			Proposals:    []string{"a"},
			Connections: []rest.Connection{
				{
					Name:          "c",
					Mode:          "start",
					LocalSubnet:   "10.0.0.0/8",
					LocalSourceIP: "%config",
					Proposals:     []string{"b"},
					LocalFirewall: "yes",
				},
			},
		},
	} {
		matches, does := words(o, rest.Config{})
		require.Equal(t, want, matches+": "+does)
	}
}

// Every kind of rules can be explained.
func TestEveryKindHasWords(t *testing.T) {
	for _, k := range sdewan.Kinds() {
		matches, _ := words(k.Collection.New(), rest.Config{})
		require.NotEmpty(t, matches, k.GVK.Kind)
	}
}

// Rules that a user may not read are left out, and named. A cluster without any kind is not
// installed.
func TestReadWithoutRights(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	d := aCNF("a", "one").Deployment
	p := aPolicy()
	c := fake.NewClientBuilder().WithScheme(
		scheme).WithObjects(&d, p, &batch.IpsecSite{ObjectMeta: metaOf("s", "one", 1)}).Build()
	v, err := Read(t.Context(), denying{c, "IpsecSite"}, "site")
	require.NoError(t, err)
	require.Equal(t, []string{"ipsecsites.batch.sdewan.akraino.org", "ipsecsites.sdewan.akraino.org"}, v.Hidden)
	require.Len(t, v.Rules, 1)
	require.Len(t, v.CNFs, 1)
	_, err = Read(t.Context(), denying{c, ""}, "site")
	require.ErrorContains(t, err, "forbidden", "no kind at all")
	_, err = Read(t.Context(), missing{c}, "site")
	require.ErrorIs(t, err, ErrNotInstalled)
}

// denying is a reader that may not list rules of the kinds whose names begin with a word.
type denying struct {
	client.Reader
	kind string
}

func (d denying) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if isRules(list) && strings.HasPrefix(reflect.TypeOf(list).Elem().Name(), d.kind) {
		return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no right"))
	}
	return d.Reader.List(ctx, list, options...)
}

// missing is a reader of an API server without kinds of rules.
type missing struct{ client.Reader }

func (m missing) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if isRules(list) {
		return &apimeta.NoKindMatchError{}
	}
	return m.Reader.List(ctx, list, options...)
}

func isRules(list client.ObjectList) bool {
	return slices.ContainsFunc(sdewan.Kinds(),
		func(k sdewan.Kind) bool { return reflect.TypeOf(k.NewList()) == reflect.TypeOf(list) })
}
