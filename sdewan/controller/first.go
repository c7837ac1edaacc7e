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

// newcomers are the CNFs to be asked soon. The signal tells that one was added, or may be taken now.
type newcomers struct {
	wake.Signal
	mu   sync.Mutex
	cnfs map[types.NamespacedName]reasons
}

// reasons are why a CNF is asked soon: one of its pods has all its rules for the first time, or such a pod was asked a while ago.
type reasons struct{ fresh, settled bool }

func newNewcomers() *newcomers {
	return &newcomers{Signal: wake.NewSignal(), cnfs: map[types.NamespacedName]reasons{}}
}

func (n *newcomers) add(cnf types.NamespacedName, why reasons) {
	n.mu.Lock()
	before := n.cnfs[cnf]
	n.cnfs[cnf] = reasons{before.fresh || why.fresh, before.settled || why.settled}
	n.mu.Unlock()
	n.Send()
}

// take returns those for which may returns true, and forgets them.
func (n *newcomers) take(may func(cnf types.NamespacedName) bool) map[types.NamespacedName]reasons {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[types.NamespacedName]reasons{}
	for cnf, why := range n.cnfs {
		if may(cnf) {
			delete(n.cnfs, cnf)
			out[cnf] = why
		}
	}
	return out
}

// first asks the CNFs with new pods until ctx is done. A CNF whose pods answer slowly delays no other one. A CNF that is being asked already is asked again
// after that.
func (c *collector) first(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.fleet.newcomers.Signal:
		}
		for cnf, why := range c.fleet.newcomers.take(c.turns.take) {
			group.Go(func() {
				defer c.giveTurn(cnf)
				if err := c.greet(ctx, cnf, why); err != nil && ctx.Err() == nil {
					c.o.Log.Error("reading what a new pod does", "cnf", cnf.String(), "err", err)
				}
			})
		}
		if wake.After(ctx, firstTogether) != nil {
			return
		}
	}
}

// greet asks the pods of a CNF, unless the reports of all of them are known: then it is the controller that is new. The pods are asked again a little later. The
// caller has the turn of the CNF. A CNF that takes too long, as many others do not answer, is asked again later.
func (c *collector) greet(ctx context.Context, cnf types.NamespacedName, why reasons) error {
	ctx, cancel := context.WithTimeout(ctx, 2*c.o.StatusPeriod)
	defer cancel()
	d, err := c.deployment(ctx, cnf)
	if d == nil || err != nil {
		return err
	}
	if why.fresh {
		known, err := c.knows(ctx, d)
		if err != nil {
			return err
		}
		why.fresh = !known
	}
	if why == (reasons{}) {
		return nil
	}
	if err := c.one(ctx, d); err != nil {
		return err
	}
	if why.fresh {
		time.AfterFunc(firstSettled, func() { c.fleet.newcomers.add(cnf, reasons{settled: true}) })
	}
	return nil
}

// deployment returns the Deployment of a CNF; nil if there is none, or several, none of which is synced.
func (c *collector) deployment(ctx context.Context, cnf types.NamespacedName) (*appsv1.Deployment, error) {
	var list appsv1.DeploymentList
	if err := c.client.List(ctx, &list, client.InNamespace(cnf.Namespace), client.MatchingLabels{sdewan.PurposeLabel: cnf.Name}); err != nil || len(list.Items) != 1 {
		return nil, err
	}
	return &list.Items[0], nil
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

// turns are the CNFs that are being asked. One goroutine at a time asks a CNF: what was asked earlier must not be written later. Nobody waits for a turn, as
// the pods of a CNF may answer slowly.
type turns struct {
	mu    sync.Mutex
	taken map[types.NamespacedName]bool
}

// take takes the turn of a CNF, unless another goroutine has it.
func (t *turns) take(cnf types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken[cnf] {
		return false
	}
	t.taken[cnf] = true
	return true
}

func (t *turns) give(cnf types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.taken, cnf)
}

// giveTurn ends the turn of a CNF. A pod of the CNF may have become new meanwhile.
func (c *collector) giveTurn(cnf types.NamespacedName) {
	c.turns.give(cnf)
	c.fleet.newcomers.Send()
}
