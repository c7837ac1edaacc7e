// Package fair shares the workers and slots of a controller between namespaces, so that whoever has
// much in some namespaces, or things that hang, keeps those of others waiting only so far: of 64,
// one namespace has at most 32, a second one then 16, a third one 8.
package fair

import (
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Queue is a work queue of client-go that shares workers between namespaces: an item is handed to a
// worker only while its namespace has fewer workers than are free, and of the namespaces whose
// items wait, the one with the fewest workers is next. In a namespace, the item that came first is
// next. An item may have further limits.
type Queue[T comparable] struct {
	workers   int
	namespace func(T) string
	limits    func(T) []Limit // of an item that is added; nil if there are none

	mu      sync.Mutex
	changed *sync.Cond // an item may be handed out, or the queue is shut down
	waiting []waitingItem[T]
	queued  map[T]bool    // the items in waiting, and items in work that are to be added again when they are done
	working map[T][]Limit // the items in work
	taken   map[string]int
	inUse   map[string]int // workers, by name of the limit
	closed  bool
}

// Limit bounds the workers of items with a limit of the same name.
type Limit struct {
	Name    string
	Workers int
}

type waitingItem[T comparable] struct {
	item   T
	limits []Limit
}

// NewQueue returns a queue for so many workers. namespace returns the namespace of an item, and
// limits its further limits; nil if there are none.
func NewQueue[T comparable](workers int, namespace func(T) string, limits func(T) []Limit) *Queue[T] {
	q := &Queue[T]{
		workers: workers, namespace: namespace, limits: limits,
		queued: map[T]bool{}, working: map[T][]Limit{}, taken: map[string]int{}, inUse: map[string]int{},
	}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// NewRequestQueue returns a queue of requests for objects.
func NewRequestQueue(workers int) *Queue[reconcile.Request] {
	return NewQueue(workers, func(r reconcile.Request) string { return r.Namespace }, nil)
}

// ForController returns q as a controller needs it: with delays and back-off.
func (q *Queue[T]) ForController(
	_ string, limiter workqueue.TypedRateLimiter[T],
) workqueue.TypedRateLimitingInterface[T] {
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{Queue: q})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[T]{DelayingQueue: delaying})
}

// Add implements workqueue.TypedInterface.
func (q *Queue[T]) Add(item T) {
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

func (q *Queue[T]) push(item T) {
	w := waitingItem[T]{item: item}
	if q.limits != nil {
		w.limits = q.limits(item)
	}
	q.waiting = append(q.waiting, w)
	q.changed.Signal()
}

// next returns which of the waiting items is next; -1 if none may be handed out.
func (q *Queue[T]) next() int {
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

func (q *Queue[T]) isReached(l Limit) bool { return q.inUse[l.Name] >= l.Workers }

// Ready reports whether Get would return an item at once.
func (q *Queue[T]) Ready() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next() >= 0
}

// Get implements workqueue.TypedInterface. The caller calls Done.
func (q *Queue[T]) Get() (item T, shutdown bool) {
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
		q.inUse[l.Name]++
	}
	if q.next() >= 0 { // the end of one item may let several others begin
		q.changed.Signal()
	}
	return w.item, false
}

// Done implements workqueue.TypedInterface.
func (q *Queue[T]) Done(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.working[item] {
		release(q.inUse, l.Name)
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
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// ShutDown implements workqueue.TypedInterface. What waits is not handed out any more.
func (q *Queue[T]) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Broadcast()
}

// ShutDownWithDrain implements workqueue.TypedInterface.
func (q *Queue[T]) ShutDownWithDrain() {
	q.ShutDown()
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.working) > 0 {
		q.changed.Wait()
	}
}

// ShuttingDown implements workqueue.TypedInterface.
func (q *Queue[T]) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}
