package cmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"subctl/agent/mesh"
	"subctl/cluster"
	"subctl/dataplane"
	"subctl/internal/kube"
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
		Example:           "  subctl show plan gw-1 --context west",
		Args:              optionalName("node"),
		ValidArgsFunction: completeArgument(g.nodes),
	}
	format := output(c, printer.Table, printer.JSON, printer.YAML)
	c.Flags().StringVar(&node, "node", "", "name of the node, instead of the argument")
	complete(c, "node", g.nodes)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if node == "" {
			return usageError(errors.New("the name of the node is missing: subctl show plan NODE"))
		}
		state, err := g.plan(c.Context(), node)
		if err != nil {
			return err
		}
		if format.Format() == printer.Table {
			_, err := fmt.Fprint(g.Out, state)
			return err
		}
		return printer.Encode(g.Out, format.Format(), planSteps(state))
	}
	return c
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
