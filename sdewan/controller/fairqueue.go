package controller

import (
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// fairQueue is a work queue of client-go that shares workers between namespaces: an item is handed
// to a worker only while its namespace has fewer workers than are free, and of the namespaces whose
// items wait, the one with the fewest workers is next. So of 64 workers, one namespace has at most
// 32, a second one then 16, a third one 8. In a namespace, the item that came first is next. An
// item may have further limits.
type fairQueue[T comparable] struct {
	workers   int
	namespace func(T) string
	limits    func(T) []limit // of an item that is added; nil if there are none

	mu      sync.Mutex
	changed *sync.Cond // an item may be handed out, or the queue is shut down
	waiting []waitingItem[T]
	queued  map[T]bool    // the items in waiting, and items in work that are to be added again when they are done
	working map[T][]limit // the items in work
	taken   map[string]int
	inUse   map[string]int // workers, by name of the limit
	closed  bool
}

// limit bounds the workers of items with a limit of the same name.
type limit struct {
	name    string
	workers int
}

type waitingItem[T comparable] struct {
	item   T
	limits []limit
}

func newFairQueue[T comparable](workers int, namespace func(T) string, limits func(T) []limit) *fairQueue[T] {
	q := &fairQueue[T]{
		workers: workers, namespace: namespace, limits: limits,
		queued: map[T]bool{}, working: map[T][]limit{}, taken: map[string]int{}, inUse: map[string]int{},
	}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// newRequestQueue returns a queue of requests for objects.
func newRequestQueue(workers int) *fairQueue[reconcile.Request] {
	return newFairQueue(workers, func(r reconcile.Request) string { return r.Namespace }, nil)
}

// forController returns q as a controller needs it: with delays and back-off.
func (q *fairQueue[T]) forController(
	_ string, limiter workqueue.TypedRateLimiter[T],
) workqueue.TypedRateLimitingInterface[T] {
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{Queue: q})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[T]{DelayingQueue: delaying})
}

// Add implements workqueue.TypedInterface.
func (q *fairQueue[T]) Add(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.queued[item] {
		return
	}
	q.queued[item] = true
	if _, working := q.working[item]; !working {
		q.push(item)
	}
}

func (q *fairQueue[T]) push(item T) {
	w := waitingItem[T]{item: item}
	if q.limits != nil {
		w.limits = q.limits(item)
	}
	q.waiting = append(q.waiting, w)
	q.changed.Signal()
}

// next returns which of the waiting items is next; -1 if none may be handed out.
func (q *fairQueue[T]) next() int {
	next := -1
	fewest := q.workers - len(q.working)
	for i, w := range q.waiting {
		if n := q.taken[q.namespace(w.item)]; n < fewest && !slices.ContainsFunc(w.limits, q.isReached) {
			next = i
			fewest = n
		}
	}
	return next
}

func (q *fairQueue[T]) isReached(l limit) bool { return q.inUse[l.name] >= l.workers }

// Get implements workqueue.TypedInterface. The caller calls Done.
func (q *fairQueue[T]) Get() (item T, shutdown bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	next := -1
	for !q.closed {
		if next = q.next(); next >= 0 {
			break
		}
		q.changed.Wait()
	}
	if q.closed {
		return item, true
	}
	w := q.waiting[next]
	q.waiting = slices.Delete(q.waiting, next, next+1)
	delete(q.queued, w.item)
	q.working[w.item] = w.limits
	q.taken[q.namespace(w.item)]++
	for _, l := range w.limits {
		q.inUse[l.name]++
	}
	if q.next() >= 0 { // the end of one item may let several others begin
		q.changed.Signal()
	}
	return w.item, false
}

// Done implements workqueue.TypedInterface.
func (q *fairQueue[T]) Done(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.working[item] {
		release(q.inUse, l.name)
	}
	release(q.taken, q.namespace(item))
	delete(q.working, item)
	if q.queued[item] {
		q.push(item)
	}
	q.changed.Broadcast()
}

// release counts one less, and forgets what is not used.
func release(counts map[string]int, name string) {
	if counts[name]--; counts[name] == 0 {
		delete(counts, name)
	}
}

// Len implements workqueue.TypedInterface.
func (q *fairQueue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// ShutDown implements workqueue.TypedInterface. What waits is not handed out any more.
func (q *fairQueue[T]) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Broadcast()
}

// ShutDownWithDrain implements workqueue.TypedInterface.
func (q *fairQueue[T]) ShutDownWithDrain() {
	q.ShutDown()
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.working) > 0 {
		q.changed.Wait()
	}
}

// ShuttingDown implements workqueue.TypedInterface.
func (q *fairQueue[T]) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}
