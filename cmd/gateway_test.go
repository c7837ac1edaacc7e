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
	"subctl/internal/cli"
)

// gatewayNode returns a gateway node, with annotations as KEY=VALUE, without their prefix.
func gatewayNode(name string, annotations ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{submarinerv1.GatewayNodeLabel: "true"}}}
	for _, a := range annotations {
		k, v, _ := strings.Cut(a, "=")
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, "gateway.submariner.io/"+k, v)
	}
	return n
}

// drainWorld is a cluster with three gateways, of which gw-3 has not reported for a while, and a worker.
func drainWorld(multi bool, nodes ...client.Object) world {
	up := connection(submarinerv1.Connected, endpoint("east", "gw-e", "172.18.0.9"))
	sub := submariner("west")
	sub.Spec.MultiActiveGatewayEnabled = multi
	objs := []client.Object{
		sub, gateway("west", "gw-1", time.Second, up), gateway("west", "gw-2", time.Second, up), gateway("west", "gw-3", time.Minute, up),
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

// carrying returns a world of drainWorld in which gw-1 reports that it carries connections, and lists some of them.
func carrying(w world, flows int64, some ...string) world {
	gw := w["west"][1].(*submarinerv1.Gateway)
	gw.Status.Flows, gw.Status.SomeFlows = &flows, some
	return w
}

// drained returns a world of drainWorld in which gw-1 reports that it is drained.
func drained(w world) world {
	w["west"][1].(*submarinerv1.Gateway).Status.Drain = submarinerv1.Drained
	return w
}

func TestGateway(t *testing.T) {
	listed := []string{"tcp 10.0.0.1:1 → 10.2.0.1:80", "tcp 10.0.0.200:40000 → 10.2.0.1:80", "udp 10.0.0.3:1 → 10.2.0.1:53"}
	for name, test := range map[string]struct {
		world world
		line  string
	}{
		"drain":                  {drainWorld(true), "drain gw-1"},
		"drain_dry":              {drainWorld(true), "drain gw-1 --dry-run --grace-period 1h"},
		"drain_json":             {drainWorld(true), "drain gw-1 --dry-run -o json"},
		"drain_carries":          {carrying(drainWorld(true), 3, listed...), "drain gw-1"},
		"drain_carries_dry":      {carrying(drainWorld(true), 7, listed...), "drain gw-1 --dry-run"},
		"drain_carries_again":    {carrying(drainWorld(true, gatewayNode("gw-1", "drain=5m")), 1, listed[0]), "drain gw-1"},
		"drain_carries_none":     {carrying(drainWorld(true), 0), "drain gw-1 gw-3"},
		"drain_passive":          {drainWorld(false), "drain gw-2"},
		"drain_active":           {drainWorld(false), "drain gw-1"},
		"drain_last":             {drainWorld(true, gatewayNode("gw-2", "weight=0")), "drain gw-1"},
		"drain_last_dry":         {drainWorld(true, gatewayNode("gw-2", "drain=5m")), "drain gw-1 --dry-run"},
		"drain_last_forced":      {drainWorld(true, gatewayNode("gw-2", "drain=5m")), "drain gw-1 --force"},
		"drain_both":             {drainWorld(true), "drain gw-1 gw-2"},
		"drain_again":            {drainWorld(true, gatewayNode("gw-1", "drain=5m")), "drain gw-1"},
		"drain_longer":           {drainWorld(true, gatewayNode("gw-1", "drain=5m")), "drain gw-1 --grace-period 1h --dry-run"},
		"drain_longer_drained":   {drained(drainWorld(true, gatewayNode("gw-1", "drain=5m"))), "drain gw-1 --grace-period 1h"},
		"drain_after_undrain":    {drained(drainWorld(true)), "drain gw-1 --grace-period 1h"},
		"drain_mistakes":         {drainWorld(true), "drain worker gw-9 gw-1 nirvana"},
		"drain_not_joined":       {world{"west": nil}, "drain gw-1"},
		"undrain":                {drainWorld(true, gatewayNode("gw-1", "drain=5m", "weight=50")), "undrain gw-1"},
		"undrain_dry":            {drainWorld(true, gatewayNode("gw-1", "drain=5m", "weight=0")), "undrain gw-1 --dry-run"},
		"undrain_not_drained":    {drainWorld(true), "undrain gw-1"},
		"undrain_mistakes":       {drainWorld(true), "undrain worker gw-9"},
		"undrain_former_gateway": {drainWorld(true, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old", Annotations: map[string]string{submarinerv1.DrainAnnotation: "5m"}}}), "undrain old"},
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, "gateway/"+name, runIn(t, test.world, []string{"west"}, append([]string{"gateway"}, strings.Fields(test.line)...)...))
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
	require.Equal(t, cli.ExitDone, run(t.Context(), g, []string{"gateway", "drain", "gw-1", "--grace-period", "90s"}), stderr.String())
	require.Equal(t, map[string]string{submarinerv1.WeightAnnotation: "50", submarinerv1.DrainAnnotation: "1m30s"}, annotations())
	require.Equal(t, cli.ExitDone, run(t.Context(), g, []string{"gateway", "drain", "gw-1", "--grace-period", "1h"}), stderr.String())
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
		gw.Status.Drain, gw.Status.DrainingSince = state, &since
		return w
	}
	r := runAtOnce(t, report("drained", 0), []string{"west"}, "gateway", "drain", "gw-1", "--wait")
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stderr, "gateway gw-1 is drained")

	flows := []string{"tcp 10.0.0.1:1 → 10.2.0.1:80", "tcp 10.0.0.20:1 → 10.2.0.1:80", "tcp 10.0.0.3:1 → 10.2.0.1:80", "udp 10.0.0.3:1 → 10.2.0.1:53"}
	r = runAtOnce(t, report("draining", 7, flows...), []string{"west"}, "gateway", "drain", "gw-1", "--wait", "--timeout", "100ms")
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

	r = runAtOnce(t, report("draining", 7, "tcp \x1b[2J"), []string{"west"}, "gateway", "drain", "gw-1", "--wait", "--timeout", "100ms")
	require.Contains(t, r.stderr, "7 connections left:\n     tcp ?[2J\n     and 6 more")

	r = runAtOnce(t, report("", 0), []string{"west"}, "gateway", "drain", "gw-1", "--wait", "--timeout", "100ms")
	require.Equal(t, cli.ExitTrouble, r.code, r.stderr)
	require.Contains(t, r.stderr, "its agent has not followed yet")

	r = runAtOnce(t, drainWorld(true), []string{"west"}, "gateway", "undrain", "gw-1", "--wait")
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	r = runAtOnce(t, report("drained", 0), []string{"west"}, "gateway", "undrain", "gw-1", "--wait", "--timeout", "100ms")
	require.Equal(t, cli.ExitTrouble, r.code, r.stderr)

	single := drained(drainWorld(false, gatewayNode("gw-1", "drain=5m")))
	r = runAtOnce(t, single, []string{"west"}, "gateway", "drain", "gw-1", "--wait", "--timeout", "100ms")
	require.Equal(t, cli.ExitTrouble, r.code, r.stderr)
	require.Contains(t, r.stderr, "leaving its role to another gateway")
}

func TestGatewayCompletion(t *testing.T) {
	w := drainWorld(true, gatewayNode("gw-2", "drain=5m"))
	for line, want := range map[string]string{"drain ": "gw-1\ngw-3\n:4\n", "drain gw-1 ": "gw-3\n:4\n", "undrain ": "gw-2\n:4\n"} {
		r := runIn(t, w, []string{"west"}, append([]string{"__complete", "gateway"}, strings.Split(line, " ")...)...)
		require.Equal(t, want, r.stdout, line)
	}
}

// Without --timeout, drain --wait takes the grace period into account: that of the command line, or the one that the node has already.
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
			r := runAtOnce(t, w, []string{"west"}, append([]string{"gateway", "drain", "gw-1", "--wait"}, strings.Fields(test.line)...)...)
			require.Equal(t, cli.ExitDone, r.code, r.stderr)
			require.Contains(t, r.stderr, test.want)
		})
	}
}

// undrain --wait does not wait for the report of a node that is no gateway node any more, only for the others.
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
