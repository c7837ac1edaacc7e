package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"subctl/agent/mesh"
	"subctl/cluster"
	"subctl/dataplane"
	"subctl/internal/kube"
	"subctl/internal/look"
	"subctl/internal/printer"
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
		Args:              optionalName("node"),
		ValidArgsFunction: completeArgument(g.nodes),
	}
	s := &show{globals: g, format: output(c, printer.Table, printer.JSON, printer.YAML)}
	s.addWatch(c)
	c.Flags().StringVar(&node, "node", "", "name of the node, instead of the argument")
	complete(c, "node", g.nodes)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if node == "" {
			return usageError(errors.New("the name of the node is missing: subctl show plan NODE"))
		}
		if !s.watch {
			return s.print(g.planPicture(c.Context(), node, s.format.Format()))
		}
		return s.follow(c.Context(), func() look.Picture { return g.planPicture(c.Context(), node, s.format.Format().Stream()) })
	}
	return c
}

// planPicture returns the plan of a node as it is printed.
func (g *globals) planPicture(ctx context.Context, node string, format printer.Format) look.Picture {
	state, err := g.plan(ctx, node)
	if err != nil {
		return look.Picture{Err: err}
	}
	if !format.Structured() {
		return look.Picture{Data: state.String()}
	}
	var b bytes.Buffer
	err = printer.Encode(&b, format, planSteps(state))
	return look.Picture{Data: b.String(), Err: err}
}

// plan returns the plan of a node.
func (g *globals) plan(ctx context.Context, node string) (dataplane.State, error) {
	c, err := g.client(ctx)
	if err != nil {
		return nil, err
	}
	objs, err := kube.List(ctx, c, c.Scheme(), cluster.Namespace, mesh.Kinds())
	if err != nil {
		return nil, err
	}
	snapshot, err := mesh.FromReports(node, objs...)
	if err != nil {
		return nil, err
	}
	state, err := mesh.PlanNode(snapshot)
	if err != nil {
		return nil, fmt.Errorf("planning node %s: %w", node, err)
	}
	return state, nil
}

// planSteps returns the objects of a plan in the order in which they are created.
func planSteps(state dataplane.State) []planStep {
	steps := []planStep{}
	for _, o := range state.Sorted() {
		steps = append(steps, planStep{o.Key().Kind.String(), o.String()})
	}
	return steps
}
