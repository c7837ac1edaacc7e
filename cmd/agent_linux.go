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
	"subctl/dataplane/kernel/conntrack"
	kernelprobe "subctl/dataplane/kernel/probe"
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
			return kernelprobe.ListenEchoes(ctx, port, size)
		},
		NewArrivals: func(conn syscall.Conn, size int) (probe.Arrivals, error) {
			return kernelprobe.NewArrivals(conn, size)
		},
		ProbeForwarding: kernelprobe.Forwarding,
		ListenUDP: func(ctx context.Context, port int) (discovery.Datagrams, error) {
			return kernelprobe.ListenUDP(ctx, port)
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
		Connections:     conntrack.Connections,
		Neighbours:      kernel.Neighbours,
		Watch:           kernel.WatchNetwork,
		MarkConnections: conntrack.MarkConnections,
		EndConnections:  conntrack.EndConnections,
		Forward:         kernel.Forward,
		Announce:        kernelprobe.Announce,
	}, nil
}

// listenCNF listens for the REST API of a CNF, or its probe.
func listenCNF(ctx context.Context, address string) (net.Listener, error) {
	return kernel.ListenTCP(ctx, address, dataplane.ControlMark)
}
