package look

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/internal/printer"
	"subctl/internal/words"
	"subctl/policy/catalog"
)

// Decisions are what decides about cables, as the API server of a cluster has it.
type Decisions struct {
	Member *catalog.Catalog // nil: not a member, or not read
	// Broker has the clustersets that the administrator gave each cluster, whether the cluster has
	// noticed that or not; nil: no broker, or not read.
	Broker *catalog.Catalog
}

// ReadDecisions reads the decisions of a cluster, as far as the user may.
func ReadDecisions(ctx context.Context, r client.Reader, s *Site) error {
	var errs [2]error
	if s.Submariner != nil {
		var o catalog.Objects
		if o, errs[0] = readPolicyObjects(ctx, r, submarinerv1.OperatorNamespace); errs[0] == nil {
			s.Decisions.Member = catalog.OfMember(s.Submariner, o).Soon()
		}
	}
	s.Decisions.Broker, errs[1] = readBrokerDecisions(ctx, r, s)
	for i := range errs {
		if apierrors.IsForbidden(errs[i]) {
			errs[i] = nil
		}
	}
	return errors.Join(errs[:]...)
}

// readBrokerDecisions returns the catalog of the broker on a cluster; nil if there is none.
func readBrokerDecisions(ctx context.Context, r client.Reader, s *Site) (*catalog.Catalog, error) {
	if err := ReadBrokers(ctx, r, s); err != nil || len(s.Brokers) == 0 {
		return nil, err
	}
	all, err := ReadBrokerPolicies(ctx, r, &s.Brokers[0])
	if err != nil {
		return nil, err
	}
	sets, err := broker.ClusterSets(ctx, r, s.Brokers[0].Namespace)
	if err != nil {
		return nil, err
	}
	of := map[string][]string{}
	for _, set := range sets {
		for _, id := range set.Members {
			of[id] = append(of[id], set.Name)
		}
	}
	for _, id := range all.ClusterIDs() {
		all = all.InSets(id, of[id])
	}
	return all, nil
}

// Undecided returns what is not yet as the cable policies, the labels of clusters, and the
// clustersets decide now, one line each: a change that has not reached a cluster, and a gateway
// that does not use the cable that its cluster has decided on.
func Undecided(sites []Site) (out []string) {
	for _, s := range sites {
		d := s.Decisions.Member
		if d == nil || s.Submariner.DeletionTimestamp != nil {
			continue
		}
		cables := d.CablesOf(d.Keeper)
		for _, other := range slices.Sorted(maps.Keys(cables)) {
			x := cables[other]
			if !d.Connectable(x.Pair) {
				continue
			}
			why := s.unreached(other, x.Cable)
			if why == "" {
				why = behind(sites, d.Keeper, other, x)
			}
			if why != "" {
				out = append(out, printer.Clean(fmt.Sprintf("%s: cluster %s: %s", x.Pair, s.Name, why)))
			}
		}
	}
	return out
}

// behind returns what a cluster has not noticed yet of a pair, for which it has decided on a cable;
// empty if no other site that has all that decides about the pair differs.
func behind(sites []Site, keeper, other string, x catalog.Connection) string {
	for _, s := range sites {
		for _, d := range []*catalog.Catalog{s.Decisions.Broker, s.Decisions.Member} {
			if d == nil || d.Keeper == keeper || !d.Judges(x.Pair) {
				continue
			}
			if want, known := d.CablesOf(keeper)[other]; known && !want.Cable.Agrees(x.Cable) {
				return fmt.Sprintf("it has not noticed yet what %s decides: %s",
					catalog.MakerName(d.Keeper), want.Cable)
			}
		}
	}
	return ""
}

// Unchecked returns a note about the clusters that were not checked, as they are not among the
// sites, or the user lacks rights; empty if there are none.
func Unchecked(sites []Site) string {
	known := map[string]bool{}
	checked := map[string]bool{}
	for _, s := range sites {
		if s.Submariner != nil {
			known[s.Name] = true
		}
		d := s.Decisions.Member
		if d == nil {
			continue
		}
		checked[d.Keeper] = true
		for _, id := range d.ClusterIDs() {
			known[id] = true
		}
	}
	maps.DeleteFunc(known, func(id string, _ bool) bool { return checked[id] })
	if len(known) == 0 {
		return ""
	}
	return fmt.Sprintf("not checked whether these clusters have noticed the latest changes, as no context was read "+
		"for them, or you may not read their cable policies: %s",
		words.List(slices.Sorted(maps.Keys(known))))
}
