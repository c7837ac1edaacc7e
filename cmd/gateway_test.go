package cmd

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/cli"
)

// gatewayNode returns a gateway node, with annotations as KEY=VALUE, without their prefix.
func gatewayNode(name string, annotations ...string) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{submarinerv1.GatewayNodeLabel: "true"}},
	}
	for _, a := range annotations {
		k, v, _ := strings.Cut(a, "=")
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, "gateway.submariner.io/"+k, v)
	}
	return n
}

// drainWorld is a cluster with three gateways, of which gw-3 has not reported for a while, and a
// worker.
func drainWorld(multi bool, nodes ...client.Object) world {
	up := connection(submarinerv1.Connected, endpoint("east", "gw-e", "172.18.0.9"))
	sub := submariner("west")
	sub.Spec.MultiActiveGatewayEnabled = multi
	objs := []client.Object{
		sub,
		gateway("west", "gw-1", time.Second, up),
		gateway("west", "gw-2", time.Second, up),
		gateway("west", "gw-3", time.Minute, up),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}},
	}
	if !multi {
		passive(objs[2].(*submarinerv1.Gateway)).Status.Connections = nil
	}
	for _, name := range []string{"gw-1", "gw-2", "gw-3"} {
		there := false
		for _, n := range nodes {
			there = there || n.GetName() == name
		}
		if !there {
			objs = append(objs, gatewayNode(name))
		}
	}
	return world{"west": append(objs, nodes...)}
}

// carrying returns a world of drainWorld in which gw-1 reports that it carries connections, and
// lists some of them.
func carrying(w world, flows int64, some ...string) world {
	gw := w["west"][1].(*submarinerv1.Gateway)
	gw.Status.Flows = &flows
	gw.Status.SomeFlows = some
	return w
}

// drained returns a world of drainWorld in which gw-1 reports that it is drained.
func drained(w world) world {
	w["west"][1].(*submarinerv1.Gateway).Status.Drain = submarinerv1.Drained
	return w
}

func TestGateway(t *testing.T) {
	listed := []string{
		"tcp 10.0.0.1:1 → 10.2.0.1:80", "tcp 10.0.0.200:40000 → 10.2.0.1:80", "udp 10.0.0.3:1 → 10.2.0.1:53",
	}
	for name, test := range map[string]struct {
		world world
		line  string
	}{
		"drain":             {drainWorld(true), "drain gw-1"},
		"drain_dry":         {drainWorld(true), "drain gw-1 --dry-run --grace-period 1h"},
		"drain_json":        {drainWorld(true), "drain gw-1 --dry-run -o json"},
		"drain_carries":     {carrying(drainWorld(true), 3, listed...), "drain gw-1"},
		"drain_carries_dry": {carrying(drainWorld(true), 7, listed...), "drain gw-1 --dry-run"},
		"drain_carries_again": {
			carrying(drainWorld(true, gatewayNode("gw-1", "drain=5m")), 1, listed[0]),
			"drain gw-1",
		},
		"drain_carries_none": {carrying(drainWorld(true), 0), "drain gw-1 gw-3"},
		"drain_passive":      {drainWorld(false), "drain gw-2"},
		"drain_active":       {drainWorld(false), "drain gw-1"},
		"drain_last":         {drainWorld(true, gatewayNode("gw-2", "weight=0")), "drain gw-1"},
		"drain_last_dry":     {drainWorld(true, gatewayNode("gw-2", "drain=5m")), "drain gw-1 --dry-run"},
		"drain_last_forced":  {drainWorld(true, gatewayNode("gw-2", "drain=5m")), "drain gw-1 --force"},
		"drain_both":         {drainWorld(true), "drain gw-1 gw-2"},
		"drain_again":        {drainWorld(true, gatewayNode("gw-1", "drain=5m")), "drain gw-1"},
		"drain_longer": {
			drainWorld(true, gatewayNode("gw-1", "drain=5m")),
			"drain gw-1 --grace-period 1h --dry-run",
		},
		"drain_longer_drained": {
			drained(drainWorld(true, gatewayNode("gw-1", "drain=5m"))),
			"drain gw-1 --grace-period 1h",
		},
		"drain_after_undrain": {drained(drainWorld(true)), "drain gw-1 --grace-period 1h"},
		"drain_mistakes":      {drainWorld(true), "drain worker gw-9 gw-1 nirvana"},
		"drain_not_joined":    {world{"west": nil}, "drain gw-1"},
		"undrain":             {drainWorld(true, gatewayNode("gw-1", "drain=5m", "weight=50")), "undrain gw-1"},
		"undrain_dry": {
			drainWorld(true, gatewayNode("gw-1", "drain=5m", "weight=0")),
			"undrain gw-1 --dry-run",
		},
		"undrain_not_drained": {drainWorld(true), "undrain gw-1"},
		"undrain_mistakes":    {drainWorld(true), "undrain worker gw-9"},
		"undrain_former_gateway": {
			drainWorld(true, &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{
					Name:        "old",
					Annotations: map[string]string{submarinerv1.DrainAnnotation: "5m"},
				},
			}),
			"undrain old",
		},
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, "gateway/"+name,
				runIn(t, test.world, []string{"west"}, append([]string{"gateway"}, strings.Fields(test.line)...)...))
		})
	}
}

// withWorker returns a world of drainWorld whose worker is suited, and that keeps a number of
// gateway nodes.
func withWorker(w world, kept int32, named ...string) world {
	for _, o := range w["west"] {
		if n, ok := o.(*corev1.Node); ok && n.Name == "worker" {
			n.Labels = map[string]string{corev1.LabelOSStable: "linux", "example.com/rack": "7"}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}
	}
	w["west"][0].(*v1alpha1.Submariner).Spec.Gateways, w["west"][0].(*v1alpha1.Submariner).Spec.GatewayNodes = &kept, named
	return w
}

// gatewaysAfter runs a command, and returns the node, and the number of gateway nodes that are kept
// with those that a person has named.
func gatewaysAfter(
	t *testing.T, w world, node string, code int, args ...string,
) (*corev1.Node, int32, []string, string) {
	t.Helper()
	g, _, stderr := testGlobals(t, w, "west")
	require.Equal(t, code, run(t.Context(), g, append([]string{"gateway"}, args...)), stderr.String())
	c, err := g.Client(t.Context())
	require.NoError(t, err)
	n := &corev1.Node{}
	sub := &v1alpha1.Submariner{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: node}, n))
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(w["west"][0]), sub))
	return n, *sub.Spec.Gateways, sub.Spec.GatewayNodes, stderr.String()
}

// A gateway that is added is kept like one that join was asked for, and a removed one is not
// replaced: otherwise, the agent that keeps their number would undo it.
func TestGatewayAddAndRemove(t *testing.T) {
	n, kept, named, stderr := gatewaysAfter(t, withWorker(drainWorld(true), 3, "gw-1"), "worker", cli.ExitDone, "add",
		"worker")
	require.Equal(t,
		map[string]string{
			corev1.LabelOSStable: "linux", "example.com/rack": "7", submarinerv1.GatewayNodeLabel: "true",
		},
		n.Labels)
	require.Equal(t, map[string]string{submarinerv1.LabelledByAnnotation: submarinerv1.ManagedBy}, n.Annotations,
		"uninstall takes the label away")
	require.Equal(t, int32(4), kept)
	require.Equal(t, []string{"gw-1", "worker"}, named)
	require.Equal(t, " ✓ node worker becomes a gateway; see subctl show gateways\n", stderr)
	_, kept, _, _ = gatewaysAfter(t, withWorker(drainWorld(true), 0), "worker", cli.ExitDone, "add", "worker")
	require.Zero(t, kept, "who keeps no number goes on so")

	for args, want := range map[string]string{
		"worker": "cannot become a gateway: it has no label kubernetes.io/os", "gw-9": "has no node \"gw-9\"",
	} {
		r := runIn(t, drainWorld(true), []string{"west"}, "gateway", "add", args)
		require.Equal(t, cli.ExitFailed, r.code)
		require.Contains(t, r.stderr, want)
	}
	r := runIn(t, withWorker(drainWorld(true), 3), []string{"west"}, "gateway", "add", "worker", "gw-1", "--dry-run")
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "label node worker: submariner.io/gateway=true\nkeep 4 gateway nodes instead of 3\n")
	require.Contains(t, r.stderr, "node gw-1 is a gateway already\n")
	r = runAtOnce(t, withWorker(drainWorld(true), 3), []string{"west"}, "gateway", "add", "worker", "--wait",
		"--timeout", "100ms")
	require.Equal(t, cli.ExitTrouble, r.code)
	require.Contains(t, r.stderr, "gateway worker: no report of its agent")

	ready := func() world {
		return withWorker(drained(drainWorld(true, gatewayNode("gw-1", "drain=5m", "weight=50"))), 3, "gw-1", "gw-2")
	}
	n, kept, named, _ = gatewaysAfter(t, ready(), "gw-1", cli.ExitDone, "remove", "gw-1")
	require.Empty(t, n.Labels)
	require.Equal(t, map[string]string{submarinerv1.WeightAnnotation: "50"}, n.Annotations, "a person has set it")
	require.Equal(t, int32(2), kept)
	require.Equal(t, []string{"gw-2"}, named)
	_, kept, _, _ = gatewaysAfter(t, withWorker(drained(drainWorld(true, gatewayNode("gw-1", "drain=5m"))), 1), "gw-1",
		cli.ExitDone, "remove", "gw-1")
	require.Equal(t, int32(1), kept, "two are left, of which one must be kept")

	n, kept, _, stderr = gatewaysAfter(t, withWorker(drainWorld(true), 3), "gw-1", cli.ExitTrouble, "remove", "gw-1",
		"--timeout", "1s")
	require.Equal(t, "true", n.Labels[submarinerv1.GatewayNodeLabel], "it is not drained")
	require.Equal(t, int32(3), kept)
	require.Contains(t, stderr, "its agent has not followed yet")

	last := func() world {
		return withWorker(drained(drainWorld(true, gatewayNode("gw-1", "drain=5m"), gatewayNode("gw-2", "weight=0"))),
			3)
	}
	r = runIn(t, last(), []string{"west"}, "gateway", "remove", "gw-1", "gw-2", "gw-3", "--grace-period", "1m")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr, "there is no other gateway node\nnothing was changed: add another gateway first "+
		"(subctl gateway add NODE); to remove it nevertheless, add --force\n")
	r = runIn(t, last(), []string{"west"}, "gateway", "remove", "gw-1", "gw-2", "gw-3", "--dry-run")
	require.Equal(t, cli.ExitTrouble, r.code)
	require.Contains(t, r.stdout, "annotate node gw-3: gateway.submariner.io/drain=5m0s\nwait until it is "+
		"drained\nremove the label submariner.io/gateway=true of node gw-1\n")
	require.Contains(t, r.stdout, "keep 0 gateway nodes instead of 3\n")
}

// A gateway that has announced that it goes is shown as leaving, without advice about firewalls,
// and is no trouble while another one reaches its cluster.
func TestLeavingGateway(t *testing.T) {
	for name, test := range map[string]struct {
		config map[string]string
		others bool
		status string
		code   int
	}{
		"drained": {map[string]string{submarinerv1.BackendDrain: submarinerv1.Drained}, true, "leaving", cli.ExitDone},
		"without its label": {
			map[string]string{submarinerv1.BackendDrain: submarinerv1.Standby, submarinerv1.BackendLeaving: "true"},
			true, "leaving", cli.ExitDone,
		},
		"the last one": {
			map[string]string{submarinerv1.BackendDrain: submarinerv1.Drained}, false, "leaving", cli.ExitTrouble,
		},
		"draining": {
			map[string]string{submarinerv1.BackendDrain: submarinerv1.Draining}, true, "error", cli.ExitTrouble,
		},
		"a standby": {
			map[string]string{submarinerv1.BackendDrain: submarinerv1.Standby}, true, "error", cli.ExitTrouble,
		},
	} {
		t.Run(name, func(t *testing.T) {
			gone := endpoint("east", "gw-gone", "172.18.0.8")
			gone.BackendConfig = test.config
			down := connection(submarinerv1.ConnectionError, gone)
			down.StatusMessage = "check the chains at the hook forward"
			all := []submarinerv1.Connection{down}
			if test.others {
				all = append(all, connection(submarinerv1.Connected, endpoint("east", "gw-e", "172.18.0.9")))
			}
			r := runIn(t, world{"west": {submariner("west"), gateway("west", "gw-1", time.Second, all...)}},
				[]string{"west"}, "show", "connections")
			require.Equal(t, test.code, r.code, r.stderr)
			require.Regexp(t, "gw-gone .* "+test.status+" ", r.stdout)
			require.Equal(t, test.status == "error", strings.Contains(r.stdout+r.stderr, "check the chains"))
			r = runIn(t, world{"west": {submariner("west"), gateway("west", "gw-1", time.Second, all...)}},
				[]string{"west"}, "show", "gateways")
			require.Equal(t, test.code, r.code, r.stderr)
			require.Equal(t, test.code == cli.ExitDone,
				strings.Contains(r.stdout, "1 connection out of 2 is established; 1 leaving\n"))
		})
	}
}

// What drain and undrain write, and that undrain restores the weight.
func TestGatewayWrites(t *testing.T) {
	w := drainWorld(true, gatewayNode("gw-1", "weight=50"))
	g, _, stderr := testGlobals(t, w, "west")
	annotations := func() map[string]string {
		c, err := g.Client(t.Context())
		require.NoError(t, err)
		n := &corev1.Node{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "gw-1"}, n))
		return n.Annotations
	}
	require.Equal(t, cli.ExitDone, run(t.Context(), g, []string{"gateway", "drain", "gw-1", "--grace-period", "90s"}),
		stderr.String())
	require.Equal(t, map[string]string{submarinerv1.WeightAnnotation: "50", submarinerv1.DrainAnnotation: "1m30s"},
		annotations())
	require.Equal(t, cli.ExitDone, run(t.Context(), g, []string{"gateway", "drain", "gw-1", "--grace-period", "1h"}),
		stderr.String())
	require.Equal(t, "1h0m0s", annotations()[submarinerv1.DrainAnnotation])
	require.Equal(t, cli.ExitDone, run(t.Context(), g, []string{"gateway", "undrain", "gw-1"}), stderr.String())
	require.Equal(t, map[string]string{submarinerv1.WeightAnnotation: "50"}, annotations())
}

// --wait follows the reports of the agents.
func TestGatewayWaits(t *testing.T) {
	report := func(state string, flows int64, some ...string) world {
		w := carrying(drainWorld(true, gatewayNode("gw-1", "drain=5m")), flows, some...)
		gw := w["west"][1].(*submarinerv1.Gateway)
		since := metav1.NewTime(now.Add(-time.Minute))
		gw.Status.Drain = state
		gw.Status.DrainingSince = &since
		return w
	}
	r := runAtOnce(t, report("drained", 0), []string{"west"}, "gateway", "drain", "gw-1", "--wait")
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stderr, "gateway gw-1 is drained")

	flows := []string{
		"tcp 10.0.0.1:1 → 10.2.0.1:80", "tcp 10.0.0.20:1 → 10.2.0.1:80", "tcp 10.0.0.3:1 → 10.2.0.1:80",
		"udp 10.0.0.3:1 → 10.2.0.1:53",
	}
	r = runAtOnce(t, report("draining", 7, flows...), []string{"west"}, "gateway", "drain", "gw-1", "--wait",
		"--timeout", "100ms")
	require.Equal(t, cli.ExitTrouble, r.code, r.stderr)
	const list = `gateway gw-1: draining since 11:59:00 UTC; 7 connections left:
     tcp 10.0.0.1:1  → 10.2.0.1:80
     tcp 10.0.0.20:1 → 10.2.0.1:80
     tcp 10.0.0.3:1  → 10.2.0.1:80
     udp 10.0.0.3:1  → 10.2.0.1:53
     and 3 more
`
	require.Contains(t, r.stderr, " • "+list, "in the course of it")
	require.Contains(t, r.stderr, "out of time")
	require.Contains(t, r.stderr, "\n  "+strings.ReplaceAll(list, "\n  ", "\n "), "at the end")

	r = runAtOnce(t, report("draining", 7, "tcp \x1b[2J"), []string{"west"}, "gateway", "drain", "gw-1", "--wait",
		"--timeout", "100ms")
	require.Contains(t, r.stderr, "7 connections left:\n     tcp ?[2J\n     and 6 more")

	r = runAtOnce(t, report("", 0), []string{"west"}, "gateway", "drain", "gw-1", "--wait", "--timeout", "100ms")
	require.Equal(t, cli.ExitTrouble, r.code, r.stderr)
	require.Contains(t, r.stderr, "its agent has not followed yet")

	r = runAtOnce(t, drainWorld(true), []string{"west"}, "gateway", "undrain", "gw-1", "--wait")
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	r = runAtOnce(t, report("drained", 0), []string{"west"}, "gateway", "undrain", "gw-1", "--wait", "--timeout",
		"100ms")
	require.Equal(t, cli.ExitTrouble, r.code, r.stderr)

	single := drained(drainWorld(false, gatewayNode("gw-1", "drain=5m")))
	r = runAtOnce(t, single, []string{"west"}, "gateway", "drain", "gw-1", "--wait", "--timeout", "100ms")
	require.Equal(t, cli.ExitTrouble, r.code, r.stderr)
	require.Contains(t, r.stderr, "leaving its role to another gateway")
}

func TestGatewayCompletion(t *testing.T) {
	w := withWorker(drainWorld(true, gatewayNode("gw-2", "drain=5m")), 3)
	for line, want := range map[string]string{
		"drain ": "gw-1\ngw-3\n:4\n", "drain gw-1 ": "gw-3\n:4\n", "undrain ": "gw-2\n:4\n",
		"remove ": "gw-1\ngw-3\ngw-2\n:4\n", "add ": "worker\n:4\n",
	} {
		r := runIn(t, w, []string{"west"}, append([]string{"__complete", "gateway"}, strings.Split(line, " ")...)...)
		require.Equal(t, want, r.stdout, line)
	}
}

// Without --timeout, drain --wait takes the grace period into account: that of the command line, or
// the one that the node has already.
func TestGatewayWaitsForTheGracePeriod(t *testing.T) {
	for name, test := range map[string]struct {
		node *corev1.Node
		line string
		want string
	}{
		"default":                {gatewayNode("gw-1"), "", "for at most 6 minutes"},
		"longer":                 {gatewayNode("gw-1"), "--grace-period 1h", "for at most 1 hour 1 minute"},
		"shorter":                {gatewayNode("gw-1"), "--grace-period 10s", "for at most 1 minute 10 seconds"},
		"draining already":       {gatewayNode("gw-1", "drain=2h"), "", "for at most 2 hours 1 minute"},
		"draining, but changed":  {gatewayNode("gw-1", "drain=2h"), "--grace-period 1h", "for at most 1 hour 1 minute"},
		"drained by its weight":  {gatewayNode("gw-1", "weight=0"), "", "for at most 6 minutes"},
		"an invalid annotation":  {gatewayNode("gw-1", "drain=soon"), "", "for at most 6 minutes"},
		"a limit by the command": {gatewayNode("gw-1", "drain=2h"), "--timeout 90s", "for at most 1 minute 30 seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			w := drainWorld(true, test.node)
			w["west"][1].(*submarinerv1.Gateway).Status.Drain = submarinerv1.Drained
			r := runAtOnce(
				t,
				w,
				[]string{"west"},
				append([]string{"gateway", "drain", "gw-1", "--wait"}, strings.Fields(test.line)...)...)
			require.Equal(t, cli.ExitDone, r.code, r.stderr)
			require.Contains(t, r.stderr, test.want)
		})
	}
}

// undrain --wait does not wait for the report of a node that is no gateway node any more, only for
// the others.
func TestUndrainDoesNotWaitForAFormerGateway(t *testing.T) {
	w := func() world {
		old := gatewayNode("old", "drain=5m")
		old.Labels = nil
		return drainWorld(true, old)
	}
	const told = "gateway old is not drained any more, and no gateway: its node has no label submariner.io/gateway=true"
	r := runAtOnce(t, w(), []string{"west"}, "gateway", "undrain", "old", "--wait")
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.Equal(t, " ✓ "+told+"\n", r.stderr)
	r = runAtOnce(t, w(), []string{"west"}, "gateway", "undrain", "old", "gw-1", "--wait")
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stderr, told)
	require.Contains(t, r.stderr, "gateway gw-1 is in service")
	require.NotContains(t, r.stderr, "until old")
}
