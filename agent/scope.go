package agent

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
)

// scope describes what an agent reads and writes. An agent of a node reads subctl's objects, and
// writes two or three of them in a loop. An agent without a node looks after the whole cluster,
// where thousands of objects may request addresses at a time.
type scope struct {
	namespace string // of the objects in snapshots; empty for all namespaces
	// requests is the number of requests that the agent may send to its API server in a second,
	// besides watches, and burst is the number of requests that it may send at once. The exchange
	// with the broker has clients of its own.
	requests, burst int
	writes          int    // how many are under way at a time
	lists           *lists // of what is watched; nil if snapshots are read from the cache
}

func scopeOf(r role.Role) scope {
	if r.Nodeless() {
		return scope{namespace: metav1.NamespaceAll, requests: 500, burst: 1000, writes: 16, lists: newLists(r.Watches)}
	}
	return scope{namespace: submarinerv1.OperatorNamespace, requests: 50, burst: 100, writes: 1}
}

// timeout bounds what a loop writes.
func (s scope) timeout() time.Duration {
	if s.lists != nil {
		return manyTimeout
	}
	return reportTimeout
}

// NoKernel returns the Kernel of agents without a node: it has nothing, and never changes.
func NoKernel() Kernel {
	return Kernel{
		Facts:  func() (dataplane.Facts, error) { return dataplane.Facts{}, nil },
		Target: func(dataplane.Owner) (dataplane.Target, error) { return nothing{}, nil },
		Watch: func(ctx context.Context, _ time.Duration) (<-chan struct{}, error) {
			never := make(chan struct{})
			context.AfterFunc(ctx, func() { close(never) })
			return never, nil
		},
	}
}

// nothing is the dataplane.Target of NoKernel.
type nothing struct{}

// Observe implements dataplane.Target.
func (nothing) Observe(context.Context, ...dataplane.Kind) (dataplane.State, error) {
	return dataplane.State{}, nil
}

// Apply implements dataplane.Target. No plan of an agent without a node has steps.
func (nothing) Apply(context.Context, dataplane.Op) error { return nil }
