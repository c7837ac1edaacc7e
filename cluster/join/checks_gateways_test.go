package join_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/brokertest"
	"subctl/broker/trust"
	"subctl/cluster"
	"subctl/cluster/clustertest"
	"subctl/cluster/join"
)

func TestGatewayNodes(t *testing.T) {
	const control = "node-role.kubernetes.io/control-plane"
	for _, test := range []struct {
		name  string
		nodes []corev1.Node
		named []string
		want  []string
	}{
		{
			"workers first",
			[]corev1.Node{
				clustertest.Node("a", "10.89.1.1", control),
				clustertest.Node("c", "10.89.1.3"),
				clustertest.Node("b", "10.89.1.2"),
			},
			nil,
			[]string{"b"},
		},
		{"control plane alone", []corev1.Node{clustertest.Node("a", "10.89.1.1", control)}, nil, []string{"a"}},
		{
			"labelled already",
			[]corev1.Node{
				clustertest.Node("a", "10.89.1.1"),
				clustertest.Node("b", "10.89.1.2", submarinerv1.GatewayNodeLabel),
			},
			nil,
			nil,
		},
		{
			"named",
			[]corev1.Node{
				clustertest.Node("a", "10.89.1.1"),
				clustertest.Node("b", "10.89.1.2", submarinerv1.GatewayNodeLabel),
			},
			[]string{"b", "a"},
			[]string{"a"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := normal()
			s.f.Nodes = test.nodes
			s.GatewayNodes = test.named
			p, err := s.plan()
			require.NoError(t, err)
			require.Equal(t, test.want, p.Gateways)
		})
	}
}

// in returns a node of a zone, with labels.
func in(zone, name string, labels ...string) corev1.Node {
	n := clustertest.Node(name, "10.89.1.1", labels...)
	if zone != "" {
		n.Labels[corev1.LabelTopologyZone] = zone
	}
	return n
}

// --gateways counts the nodes that are gateways, and spreads the others over zones.
func TestNumberOfGateways(t *testing.T) {
	const control, gateway = "node-role.kubernetes.io/control-plane", submarinerv1.GatewayNodeLabel
	cordoned := in("c", "c1")
	cordoned.Spec.Unschedulable = true
	windows := in("c", "w1")
	windows.Labels[corev1.LabelOSStable] = "windows"
	for _, test := range []struct {
		name  string
		nodes []corev1.Node
		n     int
		want  []string
		note  string
		err   string
	}{
		{
			"by name without zones",
			[]corev1.Node{in("", "c"), in("", "b"), in("", "a")},
			2,
			[]string{"a", "b"},
			"new gateway nodes: a, b; to choose others",
			"",
		},
		{
			"one of each zone",
			[]corev1.Node{in("x", "a"), in("x", "b"), in("y", "c")},
			2,
			[]string{"a", "c"},
			"a (zone x), c (zone y)",
			"",
		},
		{"around again", []corev1.Node{in("x", "a"), in("x", "b"), in("y", "c")}, 3, []string{"a", "b", "c"}, "", ""},
		{
			"the zone of a gateway is last",
			[]corev1.Node{in("x", "a"), in("x", "b", gateway), in("y", "c")},
			2,
			[]string{"c"},
			"",
			"",
		},
		{
			"as many as there are",
			[]corev1.Node{in("x", "a", gateway), in("x", "b", gateway), in("y", "c")},
			2,
			nil,
			"",
			"",
		},
		{
			"fewer than there are",
			[]corev1.Node{in("x", "a", gateway), in("x", "b", gateway), in("y", "c")},
			1,
			nil,
			"join removes no label",
			"",
		},
		{
			"workers before zones",
			[]corev1.Node{in("x", "a"), in("x", "b"), in("y", "c", control)},
			2,
			[]string{"a", "b"},
			"",
			"",
		},
		{
			"control plane last",
			[]corev1.Node{in("x", "a"), in("x", "b"), in("y", "c", control)},
			3,
			[]string{"a", "b", "c"},
			"",
			"",
		},
		{
			"a node without a zone",
			[]corev1.Node{in("x", "a"), in("x", "b"), in("", "c")},
			2,
			[]string{"a", "c"},
			"",
			"",
		},
		{
			"not suitable",
			[]corev1.Node{in("x", "a"), cordoned, windows},
			2,
			nil,
			"",
			"--gateways 2: the cluster has 0 gateway nodes, and 1 of the other nodes can become gateways",
		},
		{
			"too many",
			[]corev1.Node{in("x", "a"), in("x", "b")},
			3,
			nil,
			"",
			"--gateways 3: the cluster has 2 nodes: specify fewer",
		},
		{
			"none",
			[]corev1.Node{in("x", "a")},
			-1,
			nil,
			"",
			"--gateways -1 is not a number of gateway nodes: specify 1 to 16",
		},
		{
			"more than a grant allows",
			[]corev1.Node{in("x", "a")},
			17,
			nil,
			"",
			"--gateways 17 is not a number of gateway nodes: specify 1 to 16",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := normal()
			s.f.Nodes = test.nodes
			s.Gateways = test.n
			p, err := s.plan()
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, p.Gateways)
			require.Contains(t, strings.Join(p.Warnings, "\n"), test.note)
		})
	}
}

// Two flags that choose gateway nodes contradict each other; 0 nodes are a mistake only where they
// are specified.
func TestNumberOfGatewaysAlone(t *testing.T) {
	for _, test := range []struct {
		change func(*join.Options)
		want   string
	}{
		{func(o *join.Options) { o.GatewayNodes = []string{"n1"} }, "--gateway-nodes names them: specify one of them"},
		{func(o *join.Options) { o.LabelGateway = false }, "--label-gateway=false labels none: specify one of them"},
		{func(o *join.Options) {
			o.Gateways = 0
			o.Specified = []string{"gateways"}
		}, "--gateways 0 is not a number of gateway nodes"},
	} {
		s := normal()
		s.Gateways = 2
		test.change(&s.Options)
		_, err := s.plan()
		require.ErrorContains(t, err, test.want)
	}
}

// Several active gateways are stored, stay without the flag, and are of little use with one gateway
// node.
func TestSeveralActiveGateways(t *testing.T) {
	const warning = "no other gateway takes over if it fails: label more nodes"
	s := normal()
	p, err := s.plan()
	require.NoError(t, err)
	require.False(t, p.Submariner.Spec.MultiActiveGatewayEnabled)
	require.NotContains(t, strings.Join(p.Warnings, "\n"), warning)

	s.MultiActiveGateway = true
	p, err = s.plan()
	require.NoError(t, err)
	require.True(t, p.Submariner.Spec.MultiActiveGatewayEnabled)
	require.Contains(t, strings.Join(p.Warnings, "\n"),
		"--multi-active-gateway works with one gateway node, but "+warning)

	s.Gateways = 2
	p, err = s.plan()
	require.NoError(t, err)
	require.Equal(t, []string{"n1", "n2"}, p.Gateways)
	require.Equal(t, trust.MaxGateways, p.Grant.Gateways)
	require.Equal(t, 2, p.Reservation.ToPublish["endpoints"])
	require.NotContains(t, strings.Join(p.Warnings, "\n"), warning)

	again := normal()
	again.f.Submariner = joined("west", "hub:6443")
	again.f.Submariner.Spec.MultiActiveGatewayEnabled = true
	p, err = again.plan()
	require.NoError(t, err)
	require.True(t, p.Submariner.Spec.MultiActiveGatewayEnabled)
	require.Contains(t, strings.Join(p.Warnings, "\n"),
		"Submariner.spec.multiActiveGatewayEnabled (stored by an earlier join; specify --multi-active-gateway to change it) works with one")

	again.Specified = []string{"multi-active-gateway"} // =false
	p, err = again.plan()
	require.NoError(t, err)
	require.False(t, p.Submariner.Spec.MultiActiveGatewayEnabled)
	require.Contains(t, p.ChangesText(), "multiActiveGatewayEnabled")
}

// What the warning about a single gateway advises is not refused.
func TestAnotherGateway(t *testing.T) {
	const gateway, label = submarinerv1.GatewayNodeLabel, "label more nodes (kubectl label node NAME submariner.io/gateway=true)"
	cordoned := in("", "c1")
	cordoned.Spec.Unschedulable = true
	for _, test := range []struct {
		name   string
		nodes  []corev1.Node
		change func(*situation)
		want   string
	}{
		{
			"another node can be one",
			[]corev1.Node{in("", "a"), in("", "b")},
			func(*situation) {},
			label + ", or specify --gateways 2 or more",
		},
		{
			"one is asked for",
			[]corev1.Node{in("", "a"), in("", "b")},
			func(s *situation) { s.Gateways = 1 },
			label + ", or specify --gateways 2 or more",
		},
		{
			"one node",
			[]corev1.Node{in("", "a")},
			func(*situation) {},
			"the cluster has no other node: when it has, join again with --gateways 2",
		},
		{
			"one node, a gateway",
			[]corev1.Node{in("", "a", gateway)},
			func(*situation) {},
			"the cluster has no other node: when it has, join again with --gateways 2",
		},
		{"no other node is suitable", []corev1.Node{in("", "a"), cordoned}, func(*situation) {}, "none of the other " +
			"nodes is Ready, schedulable, Linux and not virtual: when one is, join again with --gateways 2"},
		{
			"a node is named",
			[]corev1.Node{in("", "a"), in("", "b")},
			func(s *situation) { s.GatewayNodes = []string{"b"} },
			"name more nodes with --gateway-nodes",
		},
		{
			"join labels no node",
			[]corev1.Node{in("", "a", gateway), in("", "b")},
			func(s *situation) { s.LabelGateway = false },
			label,
		},
		{
			"invited with one",
			[]corev1.Node{in("", "a"), in("", "b")},
			func(s *situation) {
				invite(t, s.file, trust.Invitation{
					Key:      brokertest.Key("invitee").Public(),
					Cluster:  "west",
					Gateways: 1,
					Sets:     []string{"default"},
					Serial:   1,
					Expires:  time.Now().Add(time.Hour).UnixMilli(),
				})
			},
			"the join file allows one: ask the administrator of the broker for another file (subctl invite --gateways 2)",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := normal()
			s.f.Nodes = test.nodes
			s.MultiActiveGateway = true
			test.change(s)
			p, err := s.plan()
			require.NoError(t, err)
			require.Contains(
				t,
				p.Warnings,
				"--multi-active-gateway works with one gateway node, but no other gateway takes over if it fails: "+
					test.want,
			)
		})
	}
}

// What join was asked for is stored, and kept by joins that do not specify it.
func TestKeptGateways(t *testing.T) {
	const gateway = submarinerv1.GatewayNodeLabel
	ours := func(name string) corev1.Node {
		n := in("", name, gateway)
		n.Annotations = map[string]string{cluster.LabelledByAnnotation: cluster.ManagedBy}
		return n
	}
	plain := []corev1.Node{in("", "a"), in("", "b"), in("", "c")}
	for _, test := range []struct {
		name   string
		nodes  []corev1.Node
		stored *int32 // of a cluster that has joined; -1: by a version that stored none
		change func(*situation)
		want   int32
		named  []string
	}{
		{name: "the default is one", nodes: plain, want: 1},
		{name: "a number", nodes: plain, change: func(s *situation) { s.Gateways = 2 }, want: 2},
		{
			name: "names", nodes: plain, change: func(s *situation) { s.GatewayNodes = []string{"c", "b", "c"} },
			want: 2, named: []string{"b", "c"},
		},
		{
			name: "a name besides one that is there", nodes: []corev1.Node{ours("a"), in("", "b")},
			change: func(s *situation) { s.GatewayNodes = []string{"b"} }, want: 2, named: []string{"b"},
		},
		{
			name: "nodes that people have labelled", nodes: []corev1.Node{in("", "a", gateway), in("", "b", gateway)},
			want: 1,
		},
		{
			name: "join labels none", nodes: []corev1.Node{in("", "a", gateway)},
			change: func(s *situation) { s.LabelGateway = false }, want: 0,
		},
		{
			name:  "joined by a version that stored none",
			nodes: []corev1.Node{ours("a"), in("", "b", gateway), in("", "c")}, stored: new(int32(-1)), want: 2,
		},
		{name: "stored", nodes: []corev1.Node{ours("a"), in("", "b")}, stored: new(int32(2)), want: 2},
		{name: "stored, and nodes are gone", nodes: plain, stored: new(int32(2)), want: 2},
		{
			name: "stored, and reset", nodes: []corev1.Node{in("", "a", gateway)}, stored: new(int32(2)),
			change: func(s *situation) { s.Reset = true }, want: 1,
		},
		{
			name: "stored, and fewer are asked for", nodes: []corev1.Node{ours("a"), ours("b")}, stored: new(int32(2)),
			change: func(s *situation) { s.Gateways = 1 }, want: 1,
		},
		{name: "join labelled none before", nodes: []corev1.Node{in("", "a", gateway)}, stored: new(int32(0)), want: 0},
		{
			name: "join labelled none before, and is to", nodes: plain, stored: new(int32(0)),
			change: func(s *situation) { s.Gateways = 2 }, want: 2,
		},
		{
			name: "join labelled none before, and may", nodes: plain, stored: new(int32(0)),
			change: func(s *situation) { s.LabelGateway = true }, want: 1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := normal()
			s.f.Nodes = test.nodes
			if test.stored != nil {
				s.f.Submariner = joined("west", "hub:6443")
				if *test.stored >= 0 {
					s.f.Submariner.Spec.Gateways = test.stored
				}
			}
			if test.change != nil {
				label := s.LabelGateway
				s.LabelGateway = false // to see whether the change specifies it
				test.change(s)
				if s.LabelGateway {
					s.Specified = append(s.Specified, "label-gateway")
				}
				if s.Gateways > 0 {
					s.Specified = append(s.Specified, "gateways")
				}
				if test.want > 0 {
					s.LabelGateway = label
				}
			}
			p, err := s.plan()
			require.NoError(t, err)
			require.Equal(t, new(test.want), p.Submariner.Spec.Gateways)
			require.Equal(t, test.named, p.Submariner.Spec.GatewayNodes)
		})
	}
}

// Nodes without an agent are named in one warning, and none of them becomes a gateway, or counts as
// one.
func TestNodesWithoutAgents(t *testing.T) {
	node := func(name string, label ...string) corev1.Node { return clustertest.Node(name, "10.89.1.1", label...) }
	windows := node("win")
	virtual := node("vk", submarinerv1.GatewayNodeLabel)
	down := node("down", submarinerv1.GatewayNodeLabel)
	windows.Labels[corev1.LabelOSStable] = "windows"
	virtual.Labels["type"] = "virtual-kubelet"
	down.Status.Conditions[0].Status = corev1.ConditionUnknown

	s := normal()
	s.f.Nodes = []corev1.Node{windows, virtual, node("ok"), down}
	p, err := s.plan()
	require.NoError(t, err)
	var got []string
	for _, w := range p.Warnings {
		if strings.Contains(w, "down") || strings.Contains(w, "win") {
			got = append(got, w)
		}
	}
	require.Equal(t, []string{"not waiting for the agents of these nodes:\n" +
		"  no agent runs on vk (is virtual: type=virtual-kubelet), win (runs windows): their pods reach no other " +
		"cluster\n" +
		"  not Ready: down (a gateway): their agents start, or are replaced, when the nodes are Ready"}, got)
	require.Equal(t, 1, p.Platform.BrokenGateways, "the virtual one is none")

	s.f.Nodes = []corev1.Node{virtual, node("ok")}
	p, err = s.plan()
	require.NoError(t, err)
	require.Equal(t, []string{"ok"}, p.Gateways, "the labelled node cannot be a gateway")

	s.GatewayNodes = []string{"vk"}
	_, err = s.plan()
	require.ErrorContains(t, err,
		`--gateway-nodes: no agent runs on node "vk", which is virtual: type=virtual-kubelet: specify another one`)
}

// k3s and RKE2 apply the labels of their configuration as kubelets, which may not change those of
// gateway nodes.
func TestLabelsInTheConfigurationOfNodes(t *testing.T) {
	warning := func(program, key string) string {
		return "the configuration of " + program + " on n1 sets the label " + key +
			": if the label of the Node is another one, or is removed, " +
			program +
			" cannot start the network of the node when it starts again; set the label with kubectl label node, and remove it from node-label in the configuration"
	}
	for _, test := range []struct{ name, annotation, args, want string }{
		{
			"k3s",
			"k3s.io/node-args",
			`["agent","--node-label","submariner.io/gateway=true"]`,
			warning("k3s", "submariner.io/gateway"),
		},
		{
			"RKE2",
			"rke2.io/node-args",
			`["server","--node-label","a=b","--node-label","gateway.submariner.io/public-ip=192.0.2.1"]`,
			warning("rke2", "gateway.submariner.io/public-ip"),
		},
		{
			"several in one value",
			"k3s.io/node-args",
			`["agent","--node-label","a=b,submariner.io/gateway=true"]`,
			warning("k3s", "submariner.io/gateway"),
		},
		{"another label", "k3s.io/node-args", `["agent","--node-label","submariner.io/gateway-zone=a"]`, ""},
		{"another option", "k3s.io/node-args", `["agent","--node-taint","submariner.io/gateway=true:NoSchedule"]`, ""},
		{"no arguments", "k3s.io/node-args", `submariner.io/gateway`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := normal()
			s.f.Nodes[0].Annotations = map[string]string{test.annotation: test.args}
			p, err := s.plan()
			require.NoError(t, err)
			texts := slices.DeleteFunc(slices.Clone(p.Warnings),
				func(text string) bool { return !strings.Contains(text, "the configuration of ") })
			if test.want == "" {
				require.Empty(t, texts)
			} else {
				require.Equal(t, []string{test.want}, texts)
			}
		})
	}
}
