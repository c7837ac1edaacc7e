package parts

import (
	"context"

	"k8s.io/client-go/kubernetes"

	"subctl/agent/mesh"
	submarinerv1 "subctl/api/submariner/v1"
)

// discoverer makes sure that one agent of service discovery acts, and remembers for it which
// clusters are reachable, whether the broker is, and which imports are settled.
type discoverer struct {
	leader *leader
	memory mesh.ServiceMemory
}

func newDiscoverer(o Options) (*discoverer, error) {
	c, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return nil, err
	}
	return &discoverer{leader: &leader{
		lease: submarinerv1.ServicesLease, timing: quickLease, holder: leaseHolder(o), client: c, nudge: o.Nudge,
		consequence: "another agent may import Services",
	}}, nil
}

// Start holds the lease until ctx is done.
func (d *discoverer) Start(ctx context.Context) error { return d.leader.Start(ctx) }

// Observe implements Observer.
func (d *discoverer) Observe(s *mesh.Snapshot) error {
	s.Previous = d.memory
	return d.leader.Observe(s)
}

// Act implements Actor.
func (d *discoverer) Act(_ mesh.Snapshot, p mesh.Plan, _ *mesh.Outcome) {
	if decided, is := p.Decisions.(*mesh.ServicePlan); is {
		d.memory = decided.Memory
	}
}
