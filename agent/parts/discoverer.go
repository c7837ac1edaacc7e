package parts

import (
	"context"

	"k8s.io/client-go/kubernetes"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/services/discoverer"
)

// serviceDiscovery makes sure that one agent of service discovery acts, and remembers for it which
// clusters are reachable, whether the broker is, and which imports are settled.
type serviceDiscovery struct {
	leader *leader
	memory discoverer.ServiceMemory
}

func newServiceDiscovery(o Options) (*serviceDiscovery, error) {
	c, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return nil, err
	}
	return &serviceDiscovery{leader: &leader{
		lease: submarinerv1.ServicesLease, timing: quickLease, holder: leaseHolder(o), client: c, trigger: o.Trigger,
		consequence: "another agent may import Services",
	}}, nil
}

// Start holds the lease until ctx is done.
func (d *serviceDiscovery) Start(ctx context.Context) error { return d.leader.Start(ctx) }

// Observe implements Observer.
func (d *serviceDiscovery) Observe(s *role.Snapshot) error {
	s.Previous = d.memory
	return d.leader.Observe(s)
}

// Act implements Actor.
func (d *serviceDiscovery) Act(_ role.Snapshot, p role.Plan, _ *role.Outcome) {
	if decided, is := p.Decisions.(*discoverer.ServicePlan); is {
		d.memory = decided.Memory
	}
}
