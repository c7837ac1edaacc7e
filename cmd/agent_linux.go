package cmd

import (
	"context"
	"net"
	"syscall"
	"time"

	"subctl/agent"
	"subctl/agent/discovery"
	"subctl/agent/probe"
	"subctl/dataplane"
	"subctl/dataplane/kernel"
	cnf "subctl/sdewan/cnf/agent"
)

// newKernel returns the real kernel. Nothing else does.
func newKernel() (agent.Kernel, error) {
	if err := kernel.Check(); err != nil {
		return agent.Kernel{}, err
	}
	return agent.Kernel{
		Facts:  kernel.ReadFacts,
		Target: func(o dataplane.Owner) (dataplane.Target, error) { return kernel.New(o) },
		Watch: func(ctx context.Context, quiet time.Duration) (<-chan struct{}, error) {
			return kernel.Watch(ctx, quiet)
		},
		ListenEchoes: func(ctx context.Context, port, size int) (probe.Echoes, error) {
			return kernel.ListenEchoes(ctx, port, size)
		},
		NewArrivals: func(conn syscall.Conn, size int) (probe.Arrivals, error) {
			return kernel.NewArrivals(conn, size)
		},
		ProbeForwarding: kernel.ProbeForwarding,
		ListenUDP: func(ctx context.Context, port int) (discovery.Datagrams, error) {
			return kernel.ListenUDP(ctx, port)
		},
	}, nil
}

// newCNFKernel returns the network namespace of the pod of a CNF, which forwards nothing before it
// has rules.
func newCNFKernel() (cnf.Kernel, error) {
	if err := kernel.Check(); err != nil {
		return cnf.Kernel{}, err
	}
	if err := kernel.StopForwarding(dataplane.CNFRules.Name); err != nil {
		return cnf.Kernel{}, err
	}
	return cnf.Kernel{
		Target:          func(o dataplane.Owner) (dataplane.Target, error) { return kernel.New(o) },
		Network:         kernel.ReadNetwork,
		Connections:     kernel.Connections,
		Neighbours:      kernel.Neighbours,
		Watch:           kernel.WatchNetwork,
		MarkConnections: kernel.MarkConnections,
		Forward:         kernel.Forward,
		Announce:        kernel.Announce,
	}, nil
}

// listenCNF listens for the REST API of a CNF, or its probe.
func listenCNF(ctx context.Context, address string) (net.Listener, error) {
	return kernel.ListenTCP(ctx, address, dataplane.ControlMark)
}
