package join

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/broker"
	"subctl/internal/kube"
	"subctl/internal/words"
	"subctl/policy/catalog"
)

// This file creates the clustersets that a cluster joins. A join file gives no right to do so: its
// holder could otherwise make namespaces, and rights in them, on the broker's cluster. So it takes
// an administrator of that cluster.

// NewSets are clustersets to create on a broker.
type NewSets struct {
	// Names are sorted.
	Names []string
	// Administrator is a client for the broker's cluster that may create them.
	Administrator client.Client
	// Objects are the result of broker.NewSets.
	Objects []client.Object
}

// rightsSettle is the time that an API server may take until it knows new RoleBindings. It usually
// takes milliseconds.
const rightsSettle = 15 * time.Second

// WillHave completes facts by clustersets that are to be created: they have no members.
func (f *BrokerFacts) WillHave(s NewSets) {
	for _, set := range s.Names {
		f.Sets = append(f.Sets, set)
		f.Members = append(f.Members, catalog.Set{Name: set, Namespace: broker.NamespaceIn(f.Namespace, set)})
	}
	slices.Sort(f.Sets)
}

// createSets creates the clustersets, and waits until the join file's rights in them are in force.
func (j *Operation) createSets(ctx context.Context) error {
	s := j.NewSets
	if len(s.Names) == 0 {
		return nil
	}
	j.Report.Step("creating %s on the broker", words.Count(len(s.Names), "clusterset"))
	if err := broker.Apply(ctx, s.Administrator, s.Objects); err != nil {
		return err
	}
	for _, set := range s.Names {
		err := wait.PollUntilContextTimeout(
			ctx,
			100*time.Millisecond,
			rightsSettle,
			true,
			func(ctx context.Context) (bool, error) {
				denied, err := kube.Denied(ctx, j.Broker, setRights(broker.NamespaceIn(j.File.BaseNamespace(), set)))
				return len(denied) == 0, err
			},
		)
		if err != nil {
			return fmt.Errorf(
				"clusterset %s was created, but the join file has no rights in it yet: run the same command again: %w",
				set, err)
		}
		j.Report.Done("created clusterset %s", set)
	}
	return nil
}
