package cmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"subctl/agent/mesh"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	"subctl/agent/roles"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/exchange"
	"subctl/cluster"
	"subctl/dataplane"
	"subctl/internal/cli"
	"subctl/internal/kube"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/progress"
)

const showPlanLong = `Show the kernel configuration that a node should have, as commands.

The plan is computed locally, by the function that the agents use, from objects on the API
server. The node itself is not read: to compare, run commands such as "ip route show table
all" on the node.`

// planStep is an object of a plan; its JSON is a promise.
type planStep struct {
	Kind    string `json:"kind"`
	Command string `json:"command"`
}

func newShowPlan(g *globals) *cobra.Command {
	var node string
	c := &cobra.Command{
		Use:               "plan NODE",
		Short:             "Show the kernel configuration that a node should have",
		Long:              showPlanLong,
		Example:           "  subctl show plan gw-1 --context west\n  subctl show plan gw-1 --watch",
		Args:              g.optionalName("node"),
		ValidArgsFunction: cli.CompleteArgument(g.Reading(look.NodeNames)),
	}
	cli.Lacks(c, "contexts", "a node belongs to one cluster: choose it with --context")
	s := &show{globals: g, format: cli.Output(c, printer.Table, printer.JSON, printer.YAML)}
	s.addWatch(c)
	c.Flags().StringVar(&node, "node", "", "name of the node, instead of the argument")
	cli.Complete(c, "node", g.Reading(look.NodeNames))
	c.RunE = func(c *cobra.Command, _ []string) error {
		if node == "" {
			return cli.UsageError(errors.New("the name of the node is missing: subctl show plan NODE"))
		}
		if !s.watch {
			return s.print(g.planPicture(c.Context(), node, s.format.Format()))
		}
		return s.follow(c.Context(),
			func() look.Picture { return g.planPicture(c.Context(), node, s.format.Format().Stream()) })
	}
	return c
}

// planPicture returns the plan of a node as it is printed.
func (g *globals) planPicture(ctx context.Context, node string, format printer.Format) look.Picture {
	state, refused, note, err := g.plan(ctx, node)
	if err != nil {
		return look.Picture{Err: err}
	}
	var notes bytes.Buffer
	for _, text := range refused {
		progress.New(&notes).Warn("%s", text)
	}
	if note != "" {
		progress.New(&notes).Warn("%s", note)
		err = look.ErrTrouble
	}
	if !format.Structured() {
		progress.New(&notes).Note("each line creates an object of the kernel of node %s; its marks, numbers and "+
			"tables are described in docs/numbers.md", node)
		progress.New(&notes).Note("to compare, run on the node: ip -d link, ip rule, ip route show table all, ip " +
			"nexthop, bridge fdb, nft list ruleset")
		return look.Picture{Data: state.String(), Notes: notes.String(), Err: err}
	}
	var b bytes.Buffer
	err = cmp.Or(printer.Encode(&b, format, planSteps(state)), err)
	return look.Picture{Data: b.String(), Notes: notes.String(), Err: err}
}

// plan returns the plan of a node, the endpoints that the node does not connect to, and a note
// about the cluster, if it is leaving.
func (g *globals) plan(
	ctx context.Context,
	node string,
) (state dataplane.State, refused []string, note string, err error) {
	c, err := g.Client(ctx)
	if err != nil {
		return nil, nil, "", err
	}
	objs, err := kube.List(ctx, c, c.Scheme(), cluster.Namespace, role.Kinds())
	if err != nil && !kube.NotThere(err) { // nothing was ever installed there
		return nil, nil, "", look.WithRemedy(err, cluster.Namespace)
	}
	joined := false
	global := false
	for _, obj := range objs {
		if sub, ok := obj.(*v1alpha1.Submariner); ok {
			joined = true
			global = sub.Spec.GlobalCIDR != ""
			if text := look.Leaving(sub); text != "" {
				note = fmt.Sprintf("cluster %q: %s", sub.Spec.ClusterID, text)
			}
		}
	}
	if !joined {
		name, _ := g.ClusterName() // readable: client has read it
		return nil, nil, "", fmt.Errorf("cluster %q has not joined, so its nodes have no plan: run \"subctl join\"",
			name)
	}
	if global { // pods, Services and their addresses
		more, err := kube.List(ctx, c, c.Scheme(), cluster.Namespace, mesh.TranslatedKinds())
		if err != nil {
			return nil, nil, "", look.WithRemedy(err, cluster.Namespace)
		}
		objs = append(objs, more...)
	}
	exchange.Reclaim(exchange.Kinds(), objs) // show plan restores no labels
	snapshot, err := mesh.FromReports(node, objs...)
	if err != nil {
		return nil, nil, "", err
	}
	if state, err = roles.PlanNode(snapshot); err != nil {
		return nil, nil, "", fmt.Errorf("planning node %s: %w", node, err)
	}
	m, err := mesh.Of(snapshot)
	if err != nil {
		return nil, nil, "", fmt.Errorf("planning node %s: %w", node, err)
	}
	return state, report.Refusals(m.Cables.Refused, nil), note, nil
}

// planSteps returns the objects of a plan in the order in which they are created.
func planSteps(state dataplane.State) []planStep {
	steps := []planStep{}
	for _, o := range state.Sorted() {
		steps = append(steps, planStep{o.Key().Kind.String(), o.String()})
	}
	return steps
}
