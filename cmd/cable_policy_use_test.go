package cmd

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/cli"
	"subctl/policy/catalog"
)

// used returns a member whose gateway reports connections to clusters of the given names.
func used(connections ...submarinerv1.Connection) []client.Object {
	const op, all = submarinerv1.OperatorNamespace, "vxlan,wireguard,ipsec"
	gw := &submarinerv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "gw-w", Namespace: op}}
	gw.SetReportedAt(now)
	gw.Status.HAStatus = submarinerv1.HAStatusActive
	secure := cablePolicy("secure", "site=a |  | ipsec")
	secure.ConnectionPolicies = append(
		secure.ConnectionPolicies,
		cablePolicy("", "site=b |  | ipsec").ConnectionPolicies...)
	objs := []client.Object{
		submariner("west"), gw, copied(cablePolicy("default", " |  | vxlan"), submarinerv1.BrokerID, "default"),
		copied(secure, "east", "default"), copied(cablePolicy("bad", "site=c |  | gre"), "east", "default"),
	}
	objs = append(objs, clusterObjects(op, "", "west", "env=production", all)...)
	for _, c := range connections {
		id := c.Endpoint.Hostname[len("gw-"):]
		c.Endpoint.ClusterID = id
		c.Endpoint.CableName = "cable-" + id
		c.Endpoint.Subnets = []string{}
		gw.Status.Connections = append(gw.Status.Connections, c)
		objs = append(objs, clusterObjects(op, id, id, "site="+id, all, "default")...)
	}
	return objs
}

func usedConnection(
	id, driver, policy string,
	rule int,
	status submarinerv1.ConnectionStatus,
	message string,
) submarinerv1.Connection {
	c := submarinerv1.Connection{
		Status:        status,
		StatusMessage: message,
		Driver:        driver,
		Policy:        policy,
		Rule:          rule,
		UsingIP:       "172.18.0.9",
	}
	c.Endpoint.Hostname = "gw-" + id
	if status == submarinerv1.ConnectionError {
		c.UsingIP = ""
	}
	return c
}

// What explain and list print agrees with show connections, whatever the gateways do: a cable
// that does not answer, a cable that is kept, discovered NAT, the limit of devices.
func TestPolicyUses(t *testing.T) {
	const stuck = "the cable to gateway gw-b of cluster b should be ipsec since 04:00, but that cable does not answer"
	const kept = `the cable to cluster c stays wireguard: cable policy bad: unknown cable driver "gre"`
	const nat = "refused: there is NAT between the gateways, through which vxlan does not work"
	const wait = "waiting for the cable policies: they have not been read from the broker yet"
	waiting := usedConnection("f", "", "", 0, submarinerv1.Connecting, wait)
	waiting.UsingIP = ""
	waiting.Endpoint.Backend = "wireguard"
	const limited = "refused: cable policy default requires a separate device, vxlan-tunnel-7, but policies can make a gateway create at most 16 devices: let pairs of clusters share a vxlanID"
	translated := usedConnection("g", "vxlan", "default", 1, submarinerv1.Connected, "")
	translated.UsingNAT = true
	w := world{"west": used(waiting,
		usedConnection("a", "ipsec", "secure", 1, submarinerv1.Connected, ""),
		usedConnection("b", "vxlan", "default", 1, submarinerv1.Connecting, stuck),
		usedConnection("c", "wireguard", "older", 1, submarinerv1.Connected, kept),
		usedConnection("d", "vxlan", "default", 1, submarinerv1.ConnectionError, nat),
		usedConnection("e", "vxlan", "default", 1, submarinerv1.Connected, ""),
		translated,
		usedConnection("h", "vxlan", "default", 1, submarinerv1.ConnectionError, limited),
	)}
	for _, test := range []struct {
		id, text string
		code     int
	}{
		{
			"a",
			"a - west: ipsec\n  gateway gw-w of cluster west to gw-a of cluster a: ipsec (rule 1 of cable policy secure), connected\n  rule 1 of cable policy secure decides: ",
			cli.ExitDone,
		},
		{
			"b",
			"b - west: ipsec, but the gateways of this cluster report something else:\n  gateway gw-w of cluster west to gw-b of cluster b: vxlan (rule 1 of cable policy default), connecting: " +
				stuck + "\n  rule 2 of cable policy secure decides: ",
			cli.ExitTrouble,
		},
		{
			"c",
			"c - west: no cable: cable policy bad: unknown cable driver \"gre\": use one of vxlan, wireguard, vxlan+wireguard, ipsec, vxlan+ipsec, but the gateways of this cluster report something else:\n" +
				"  gateway gw-w of cluster west to gw-c of cluster c: wireguard (rule 1 of cable policy older), connected: " + kept + "\n",
			cli.ExitTrouble,
		},
		{
			"d",
			"d - west: vxlan, but the gateways of this cluster report something else:\n  gateway gw-w of cluster west to gw-d of cluster d: no cable, error: " +
				nat + "\n",
			cli.ExitTrouble,
		},
		{
			"e",
			"e - west: vxlan\n  gateway gw-w of cluster west to gw-e of cluster e: vxlan (rule 1 of cable policy default), connected\n",
			cli.ExitDone,
		},
		{
			"f",
			"f - west: vxlan, but the gateways of this cluster report something else:\n  gateway gw-w of cluster west to gw-f of cluster f: no cable, connecting: " +
				wait + "\n",
			cli.ExitTrouble,
		},
		{
			"g",
			"g - west: vxlan\n  gateway gw-w of cluster west to gw-g of cluster g: vxlan (rule 1 of cable policy default), connected, through NAT\n",
			cli.ExitDone,
		},
		{
			"h",
			"h - west: vxlan, but the gateways of this cluster report something else:\n  gateway gw-w of cluster west to gw-h of cluster h: no cable, error: " +
				limited + "\n",
			cli.ExitTrouble,
		},
	} {
		t.Run(test.id, func(t *testing.T) {
			got := runIn(t, w, []string{"west"}, "cable-policy", "explain", test.id, "west")
			require.Equal(t, test.code, got.code, got.stderr)
			require.Contains(t, got.stdout, test.text)
			require.Contains(t, got.stdout,
				fmt.Sprintf("without a policy: the default driver of %s is vxlan, of west vxlan", test.id))

			got = runIn(t, w, []string{"west"}, "cable-policy", "explain", test.id, "west", "-o", "json")
			var r catalog.Reason
			require.NoError(t, json.Unmarshal([]byte(got.stdout), &r))
			require.Len(t, r.InUse, 1)
			require.Equal(t, test.code == cli.ExitTrouble, r.Differs)
			require.Equal(t, test.id == "g", r.InUse[0].NAT)
			require.Empty(t, r.NotObserved)
		})
	}
	got := runIn(t, w, []string{"west"}, "cable-policy", "list")
	require.Equal(t, cli.ExitTrouble, got.code)
	for _, text := range []string{stuck, kept, nat, limited} {
		require.Contains(t, got.stderr, text)
	}
	require.NotContains(t, got.stderr, "gw-a of cluster a")
	require.NotContains(t, got.stderr, "gw-e of cluster e")
	require.NotContains(t, got.stderr, "gw-g of cluster g")

	// The same connections, with the same states.
	var rows []connectionRow
	require.NoError(t,
		json.Unmarshal([]byte(runIn(t, w, []string{"west"}, "show", "connections", "-o", "json").stdout), &rows))
	require.Len(t, rows, 8)
	for _, row := range rows {
		var r catalog.Reason
		require.NoError(
			t,
			json.Unmarshal(
				[]byte(
					runIn(t, w, []string{"west"}, "cable-policy", "explain", "west", row.RemoteCluster, "-o",
						"json").stdout,
				),
				&r,
			),
		)
		u := r.InUse[0]
		require.Equal(t, []any{row.Status, row.StatusMessage, row.Policy, row.Rule, row.NAT},
			[]any{u.Status, u.Message, u.Policy, u.Rule, u.NAT})
		if u.CableDriver != "" {
			require.Equal(t, row.CableDriver, u.CableDriver)
		}
	}
}

// Where a cluster has several gateways, explain tells which driver is in place of the one of the
// policy, and why: that is no difference.
func TestPolicyStandIn(t *testing.T) {
	objs := used(usedConnection("b", "vxlan+ipsec", "secure", 2, submarinerv1.Connected, ""))
	for _, o := range objs {
		if e, ok := o.(*submarinerv1.Endpoint); ok {
			e.Spec.BackendConfig[submarinerv1.BackendDrivers] += ",vxlan+ipsec"
			e.Spec.BackendConfig[submarinerv1.BackendSiblings] = strconv.FormatBool(e.Spec.ClusterID == "b")
		}
	}
	const why = "ipsec connects to one gateway of a cluster, and cluster b has several: vxlan+ipsec is in its place"
	got := runIn(t, world{"west": objs}, []string{"west"}, "cable-policy", "explain", "b", "west")
	require.Equal(t, cli.ExitDone, got.code, got.stderr)
	require.Contains(t, got.stdout,
		"b - west: vxlan+ipsec\n  gateway gw-w of cluster west to gw-b of cluster b: vxlan+ipsec (rule 2 of cable policy secure), connected\n")
	require.Contains(t, got.stdout, "\n  "+why+"\n")
	var r catalog.Reason
	got = runIn(t, world{"west": objs}, []string{"west"}, "cable-policy", "explain", "b", "west", "-o", "json")
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &r))
	require.Equal(t, []string{"vxlan+ipsec", why}, []string{r.CableDriver, r.CableDriverReason})
	require.NotContains(t, runIn(t, world{"west": objs}, []string{"west"}, "cable-policy", "list").stderr,
		"of cluster b")
}

// Where no gateway of a pair reports, explain and list print that, and who knows more: on a broker,
// on a member outside the pair, and on a member whose gateways report no connection to the other
// cluster.
func TestPolicyUsesNotObserved(t *testing.T) {
	base := submarinerv1.BrokerNamespace
	hub := []client.Object{
		&v1alpha1.Broker{
			ObjectMeta: metav1.ObjectMeta{Name: "submariner-broker", Namespace: base},
		}, inSet(base, "default"),
		inNamespace(cablePolicy("default", " |  | vxlan"), base),
	}
	for _, id := range []string{"a", "e"} {
		hub = append(hub, clusterObjects(base, id, id, "", "vxlan,wireguard,ipsec")...)
	}
	w := world{
		"hub": hub,
		"west": used(usedConnection("a", "ipsec", "secure", 1, submarinerv1.Connected, ""),
			usedConnection("e", "vxlan", "default", 1, submarinerv1.Connected, "")),
		"idle": append(used(), clusterObjects(submarinerv1.OperatorNamespace, "e", "e", "", "vxlan,wireguard,ipsec",
			"default")...),
	}
	const elsewhere = "what the gateways do is not observed here: only a and e see it: use the context of one of them (--context)"
	const idle = "what the gateways do is not observed here: no gateway of cluster west reports a connection to cluster e: see subctl show gateways"
	for _, test := range []struct{ context, id, other, why string }{
		{"hub", "a", "e", elsewhere},
		{"west", "a", "e", elsewhere},
		{"idle", "west", "e", idle},
	} {
		t.Run(test.context, func(t *testing.T) {
			got := runIn(t, w, []string{test.context}, "cable-policy", "explain", test.id, test.other)
			require.Contains(t, got.stdout, "\n  "+test.why+"\n")
			require.Equal(t, cli.ExitDone, got.code, "it is no problem of the pair")
			var r catalog.Reason
			require.NoError(
				t,
				json.Unmarshal(
					[]byte(
						runIn(t, w, []string{test.context}, "cable-policy", "explain", test.id, test.other, "-o",
							"json").stdout,
					),
					&r,
				),
			)
			require.Equal(t, test.why, r.NotObserved)
			require.Empty(t, r.InUse)

			got = runIn(t, w, []string{test.context}, "cable-policy", "list", "-o", "json")
			first := min(test.id, test.other)
			second := max(test.id, test.other)
			require.Contains(
				t,
				got.stderr,
				fmt.Sprintf(
					"1 pair: what the gateways do is not observed here (subctl cable-policy explain prints why): %s - %s\n",
					first, second),
			)
			var rules []catalog.Rule
			require.NoError(t, json.Unmarshal([]byte(got.stdout), &rules))
			var pairs [][2]string
			for _, r := range rules {
				pairs = append(pairs, r.NotObserved...)
			}
			require.Len(t, pairs, 1)
			require.ElementsMatch(t, []string{test.id, test.other}, pairs[0][:])
		})
	}
	require.NotContains(
		t,
		runIn(t, world{"west": used(usedConnection("a", "ipsec", "secure", 1, submarinerv1.Connected, ""))},
			[]string{"west"}, "cable-policy", "list").stderr,
		"observed",
	)
}

// After a failover, what the gateway before reported last counts no longer, as in show connections.
func TestReplacedGatewayUsesNothing(t *testing.T) {
	before := &submarinerv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: "gw-before", Namespace: submarinerv1.OperatorNamespace},
	}
	before.SetReportedAt(now.Add(-10 * time.Second))
	before.Status.HAStatus = submarinerv1.HAStatusActive
	lost := usedConnection("e", "ipsec", "secure", 1, submarinerv1.ConnectionError, "no answer")
	lost.Endpoint.ClusterID = "e"
	lost.Endpoint.Subnets = []string{}
	before.Status.Connections = []submarinerv1.Connection{lost}
	w := world{"west": append(used(usedConnection("e", "vxlan", "default", 1, submarinerv1.Connected, "")), before)}
	got := runIn(t, w, []string{"west"}, "cable-policy", "explain", "e", "west")
	require.Equal(t, cli.ExitDone, got.code, got.stdout)
	require.NotContains(t, got.stdout, "gw-before")
	require.Contains(t, got.stdout, "gateway gw-w of cluster west to gw-e of cluster e: vxlan")
	require.NotContains(t, runIn(t, w, []string{"west"}, "cable-policy", "list").stderr, "gw-before")
}
