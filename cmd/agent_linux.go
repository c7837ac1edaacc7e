package cmd

import (
	"context"
	"time"

	"subctl/agent"
	"subctl/dataplane"
	"subctl/dataplane/kernel"
)

// newKernel hands the agent the real kernel: the only place that does.
func newKernel() (agent.Node, error) {
	return agent.Node{
		Facts:  kernel.ReadFacts,
		Target: func(o dataplane.Owner) (dataplane.Target, error) { return kernel.New(o) },
		Watch: func(ctx context.Context, quiet time.Duration) (<-chan struct{}, error) {
			return kernel.Watch(ctx, quiet)
		},
	}, nil
}
