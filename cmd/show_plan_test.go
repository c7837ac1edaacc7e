package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/cli"
	"subctl/internal/kubetest"
)

// scenario returns the cluster of a scenario of the agents, and what it says that
// each node holds.
func scenario(t *testing.T, name string) (objs []client.Object, nodes map[string]string) {
	t.Helper()
	archive, err := txtar.ParseFile("../testdata/scenarios/" + name + ".txtar")
	require.NoError(t, err)
	nodes = map[string]string{}
	for _, f := range archive.Files {
		if node, ok := strings.CutPrefix(f.Name, "node "); ok {
			nodes[node] = string(f.Data)
		}
	}
	return kubetest.Decode(t, archive), nodes
}

// connectedToWest is the report of gateway gw of scenario two-clusters, whose cable has answered.
func connectedToWest() *submarinerv1.Gateway {
	return &submarinerv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: "gw", Namespace: submarinerv1.OperatorNamespace},
		Status: submarinerv1.GatewayStatus{
			HAStatus: submarinerv1.HAStatusActive,
			Connections: []submarinerv1.Connection{{
				Driver: "vxlan", Device: "vxlan-tunnel", UsingIP: "10.89.2.11",
				Endpoint: submarinerv1.EndpointSpec{
					ClusterID: "west",
					CableName: "submariner-cable-west-10-89-2-11",
					PrivateIP: "10.89.2.11",
				},
			}},
		},
	}
}

// TestShowPlan prints what the agents of the same cluster are tested to plan.
func TestShowPlan(t *testing.T) {
	objs, nodes := scenario(t, "two-clusters")
	require.NotEmpty(t, nodes)
	w := world{"east": append(objs, connectedToWest())}
	contexts := []string{"west", "east"}
	for node, want := range nodes {
		got := runIn(t, w, contexts, "show", "plan", "--context", "east", "--node", node)
		require.Equal(t, want, got.stdout)
		require.Equal(t, " • each line creates an object of the kernel of node "+node+"; its marks, numbers and "+
			"tables are described in docs/numbers.md\n"+
			" • to compare, run on the node: ip -d link, ip rule, ip route show table all, ip nexthop, bridge fdb, "+
			"nft list ruleset\n", got.stderr)

		got = runIn(t, w, contexts, "show", "plan", "--context", "east", "--node", node, "-o", "json")
		require.Equal(t, cli.ExitDone, got.code)
		var steps []map[string]string
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &steps))
		var lines strings.Builder
		for _, step := range steps {
			require.Len(t, step, 2)
			require.NotEmpty(t, step["kind"], "a kind without a name: %s", step["command"])
			lines.WriteString(step["command"] + "\n")
		}
		require.Equal(t, want, lines.String())
	}
}

// The plan of a gateway with a global network has the addresses that it translates.
func TestShowPlanGlobalnet(t *testing.T) {
	objs, nodes := scenario(t, "globalnet")
	part := regexp.MustCompile(`(?ms)^table ip submariner-gateway-globalnet \{\n.*?^\}\n`)
	for node, want := range nodes {
		got := runIn(t, world{"east": objs}, []string{"east"}, "show", "plan", node)
		require.Equal(t, cli.ExitDone, got.code, got.stderr)
		require.Equal(t, part.FindAllString(want, -1), part.FindAllString(got.stdout, -1), node)
		require.Equal(t, node == "worker", len(part.FindAllString(want, -1)) == 0)
	}
}

func TestShowPlanMistakes(t *testing.T) {
	objs, _ := scenario(t, "alone")
	got := runIn(t, world{"east": objs}, []string{"east"}, "show", "plan", "--node", "gw-9")
	require.Equal(t,
		result{code: cli.ExitFailed, stderr: "Error: the cluster has no node \"gw-9\": it has gw, worker\n"}, got)

	got = runIn(t, world{"east": nil}, []string{"east"}, "show", "plan", "--node", "gw")
	require.Equal(t, cli.ExitFailed, got.code)
	require.Equal(t, "Error: cluster \"kube-east\" has not joined, so its nodes have no plan: run \"subctl join\"\n",
		got.stderr)
	require.Empty(t, got.stdout)
}

// A user who lacks a right is told what to do.
func TestShowPlanDenied(t *testing.T) {
	objs, _ := scenario(t, "alone")
	for denied, remedy := range map[string]string{
		"nodes":         "ask an administrator for the right to list nodes, which the ClusterRole view does not contain, or choose another user or context (docs/permissions.md)\n",
		"cablepolicies": "ask an administrator for the ClusterRole view in namespace submariner-operator, or choose another user or context (docs/permissions.md)\n",
	} {
		g, _, stderr := testGlobals(t, world{"east": objs}, "east")
		connect := g.Connect
		g.Connect = func(ctx context.Context, cfg *rest.Config) (client.Client, error) {
			c, err := connect(ctx, cfg)
			if err != nil {
				return nil, err
			}
			return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
				List: func(
					ctx context.Context,
					c client.WithWatch,
					list client.ObjectList,
					opts ...client.ListOption,
				) error {
					if gvk, err := c.GroupVersionKindFor(list); err != nil ||
						strings.TrimSuffix(strings.ToLower(gvk.Kind), "list") == strings.TrimSuffix(denied, "s") ||
						strings.EqualFold(gvk.Kind, denied+"list") {
						return apierrors.NewForbidden(schema.GroupResource{Resource: denied}, "",
							errors.New("alice may not"))
					}
					return c.List(ctx, list, opts...)
				},
			}), nil
		}
		require.Equal(t, cli.ExitFailed, run(t.Context(), g, []string{"show", "plan", "gw"}))
		require.True(t, strings.HasSuffix(stderr.String(), remedy), stderr)
	}
}

// TestLeaving shows a cluster that is being uninstalled.
func TestLeaving(t *testing.T) {
	objs, _ := scenario(t, "alone")
	for _, obj := range objs {
		if sub, ok := obj.(*v1alpha1.Submariner); ok {
			sub.DeletionTimestamp = &metav1.Time{Time: now}
			sub.Finalizers = []string{v1alpha1.UninstallFinalizer}
			const note = ": it is leaving its clustersets since 2026-03-01T12:00:00Z: subctl uninstall finishes that\n"
			for _, args := range []string{"show plan gw", "show all", "show connections"} {
				got := runIn(t, world{"east": objs}, []string{"east"}, strings.Fields(args)...)
				require.Equal(t, cli.ExitTrouble, got.code, args)
				require.Contains(t, got.stderr, " ⚠ cluster \""+sub.Spec.ClusterID+"\""+note, args)
			}
			return
		}
	}
	t.Fatal("the scenario has no Submariner")
}

// TestNamesComplete completes flags and arguments that name nodes, ConfigMaps and the like.
func TestNamesComplete(t *testing.T) {
	objs, _ := scenario(t, "alone")
	objs = append(objs,
		configMap("tuned", submarinerv1.OperatorNamespace, map[string]string{v1alpha1.CableCustomConfig: "mtu: 1300"}),
		configMap("kube-root-ca.crt", submarinerv1.OperatorNamespace, map[string]string{"ca.crt": ""}))
	for line, want := range map[string]string{
		"show plan --node ":                      "gw worker",
		"show plan ":                             "gw worker",
		"show plan gw ":                          "",
		"join f --gateway-nodes ":                "gw worker",
		"join f --gateway-nodes gw,":             "gw,worker",
		"join f --cable-drivers x,":              "x,vxlan x,wireguard x,vxlan+wireguard x,ipsec x,vxlan+ipsec",
		"join f --combined-cable-drivers vxlan,": "vxlan,wireguard vxlan,ipsec",
		"join f --cable-driver-config ":          "tuned",
		"cable-policy add --cable-config ":       "tuned",
		"deploy-broker --components ":            "connectivity service-discovery",
		"version --cluster ":                     "kube-east",
		"version --user ":                        "east",
	} {
		got := runIn(
			t,
			world{"east": objs},
			[]string{"east"},
			append([]string{"__complete"}, strings.Split(line, " ")...)...)
		values, _, _ := strings.Cut(got.stdout, ":4\n")
		require.Equal(t, want, strings.Join(strings.Fields(values), " "), line)
	}
}
