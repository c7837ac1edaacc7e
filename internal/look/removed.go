package look

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/exchange"
	"subctl/policy/catalog"
)

// ReadRemoved reads which clusters were revoked, or have left: those that the gateways of a member
// remember or, on a cluster that has not joined and hosts a broker, those that the broker states,
// if it states the administrator's key, too. It reads the members as well.
func ReadRemoved(ctx context.Context, r client.Reader, s *Site) error {
	if err := ReadMembers(ctx, r, s); err != nil || s.Members == nil {
		return err
	}
	var all []exchange.Removal
	var err error
	if s.Submariner != nil {
		all, err = remembered(ctx, r)
	} else {
		all, err = stated(ctx, r, s)
	}
	for _, removal := range all {
		// else it has joined again
		if _, member := s.Members.Cluster(removal.Cluster); !member || removal.Cluster == s.Members.Keeper {
			s.Removed = append(s.Removed, removal)
		}
	}
	return err
}

// remembered returns what the gateways of a member remember.
func remembered(ctx context.Context, r client.Reader) ([]exchange.Removal, error) {
	memory := exchange.NewMemory(submarinerv1.OperatorNamespace)
	if err := r.Get(ctx, client.ObjectKeyFromObject(memory), memory); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading which clusters were removed: %w",
			WithRemedy(err, submarinerv1.OperatorNamespace))
	}
	return exchange.Removals(memory)
}

// stated returns what a broker states.
func stated(ctx context.Context, r client.Reader, s *Site) (out []exchange.Removal, err error) {
	administrator := s.Brokers[0].Annotations[broker.AdministratorAnnotation]
	var mu sync.Mutex
	found := map[string][]exchange.Removal{} // by namespace
	sets, err := readSets(
		ctx,
		r,
		s.Brokers[0].Namespace,
		func(ctx context.Context, r client.Reader, namespace string) (catalog.Objects, error) {
			var clusters submarinerv1.ClusterList
			err := listIn(ctx, r, &clusters, namespace, "clusters")
			for i := range clusters.Items {
				c := &clusters.Items[i]
				removal, ok := exchange.RemovalOf(c, administrator)
				if exchange.IsRemoved(c) && ok {
					mu.Lock()
					found[namespace] = append(found[namespace], removal)
					mu.Unlock()
				}
			}
			return catalog.Objects{}, err
		},
	)
	for _, set := range sets {
		for _, removal := range found[set.Namespace] {
			if !slices.ContainsFunc(out, func(o exchange.Removal) bool { return o.Cluster == removal.Cluster }) {
				out = append(out, removal)
			}
		}
	}
	return out, err
}
