package cmd

import (
	"context"
	"errors"
	"time"

	"subctl/agent"
	"subctl/dataplane"
	"subctl/dataplane/kernel"
)

// newKernel hands the agent the real kernel: the only place that does.
func newKernel() (agent.Kernel, error) {
	f, err := kernel.Features()
	if err != nil {
		return agent.Kernel{}, err
	}
	if !f.Nexthops {
		return agent.Kernel{}, errors.New("this node's kernel has no next hop objects: Linux 5.3 or newer is needed")
	}
	return agent.Kernel{
		Facts:  kernel.ReadFacts,
		Target: func(o dataplane.Owner) (dataplane.Target, error) { return kernel.New(o) },
		Watch: func(ctx context.Context, quiet time.Duration) (<-chan struct{}, error) {
			return kernel.Watch(ctx, quiet)
		},
		ListenUDP: func(ctx context.Context, port int) (agent.Datagrams, error) { return kernel.ListenUDP(ctx, port) },
	}, nil
}
