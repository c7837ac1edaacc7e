package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/internal/wake"
	"subctl/sdewan"
)

// A pod that is new is asked as soon as it has its rules, and not only when all CNFs are: somebody waits for it, such as whoever has begun a rollout.

const (
	// Pods that answer for the first time within this time are asked together, as the pods of a CNF often start together.
	firstTogether = time.Second
	// What a pod reports first, such as tunnels that are being negotiated, is usually another thing after this time. Then it is asked again.
	firstSettled = 5 * time.Second
)

// newcomers are the CNFs of which a pod has answered for the first time.
type newcomers struct {
	wake.Signal
	mu   sync.Mutex
	cnfs map[types.NamespacedName]bool
}

func newNewcomers() *newcomers {
	return &newcomers{Signal: wake.NewSignal(), cnfs: map[types.NamespacedName]bool{}}
}

func (n *newcomers) add(cnf types.NamespacedName) {
	n.mu.Lock()
	n.cnfs[cnf] = true
	n.mu.Unlock()
	n.Send()
}

// take returns all, and forgets them.
func (n *newcomers) take() map[types.NamespacedName]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.cnfs
	n.cnfs = map[types.NamespacedName]bool{}
	return out
}

// first asks the CNFs with new pods until ctx is done. A CNF whose pods answer slowly delays no other one.
func (c *collector) first(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.fleet.newcomers.Signal:
		}
		for cnf := range c.fleet.newcomers.take() {
			group.Go(func() {
				if err := c.greet(ctx, cnf); err != nil && ctx.Err() == nil {
					c.o.Log.Error("reading what a new pod does", "cnf", cnf.String(), "err", err)
				}
			})
		}
		if wake.After(ctx, firstTogether) != nil {
			return
		}
	}
}

// greet asks the pods of a CNF, and again a little later, unless the reports of all of them are known: then it is the controller that is new.
func (c *collector) greet(ctx context.Context, cnf types.NamespacedName) error {
	var deployments appsv1.DeploymentList
	if err := c.client.List(ctx, &deployments, client.InNamespace(cnf.Namespace), client.MatchingLabels{sdewan.PurposeLabel: cnf.Name}); err != nil {
		return err
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		if known, err := c.knows(ctx, d); known || err != nil {
			return err
		}
		if err := c.one(ctx, d); err != nil {
			return err
		}
		if wake.After(ctx, firstSettled) != nil {
			return nil
		}
		if err := c.one(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// knows reports whether all pods of a CNF that are ready have reported.
func (c *collector) knows(ctx context.Context, d *appsv1.Deployment) (bool, error) {
	pods, err := c.pods(ctx, d)
	if err != nil {
		return false, err
	}
	var s batch.CNFStatus
	if err := c.client.Get(ctx, client.ObjectKeyFromObject(d), &s); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	for _, p := range pods {
		if isReady(p) && !slices.ContainsFunc(s.Status.Information, func(i batch.CNFInformation) bool { return i.Name == p.Name && i.Error == "" }) {
			return false, nil
		}
	}
	return true, nil
}

// turns lets one goroutine at a time work on a CNF: what was asked earlier must not be written later.
type turns struct {
	mu   sync.Mutex
	cnfs map[types.NamespacedName]*turn
}

type turn struct {
	sync.Mutex
	users int
}

// take waits for the turn of the caller, who calls the returned function at its end.
func (t *turns) take(cnf types.NamespacedName) (done func()) {
	t.mu.Lock()
	one := t.cnfs[cnf]
	if one == nil {
		one = &turn{}
		t.cnfs[cnf] = one
	}
	one.users++
	t.mu.Unlock()
	one.Lock()
	return func() {
		one.Unlock()
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(t.cnfs, cnf)
		}
	}
}
