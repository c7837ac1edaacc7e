package fair

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// byPrefix is a queue of items such as a1, of namespace a.
func byPrefix(workers int, limits func(string) []Limit) *Queue[string] {
	return NewQueue(workers, func(item string) string { return item[:1] }, limits)
}

// handedOut returns what a queue hands out until it has nothing more.
func handedOut(t *testing.T, q *Queue[string]) (items []string) {
	t.Helper()
	for q.Ready() {
		item, shutdown := q.Get()
		require.False(t, shutdown)
		items = append(items, item)
	}
	return items
}

// A namespace with many CNFs that are slow does not have all workers.
func TestHostileNamespace(t *testing.T) {
	q := byPrefix(64, nil)
	for n := range 8 {
		for i := range 64 {
			q.Add(fmt.Sprintf("%c%d", 'a'+n, i))
		}
		if n < 7 {
			require.Len(t, handedOut(t, q), []int{32, 16, 8, 4, 2, 1, 1}[n], "namespace %d", n)
		}
	}
	require.Empty(t, handedOut(t, q), "all workers have an item")
	q.Done("a0")
	require.Equal(t, []string{"h0"}, handedOut(t, q), "the namespace with the fewest workers is next")
}

// Of those that wait in a namespace, the one that came first is next, and an item is in work once.
func TestQueue(t *testing.T) {
	q := byPrefix(4, nil)
	for _, item := range []string{"a1", "a2", "a1", "a3", "b1"} {
		q.Add(item)
	}
	require.Equal(t, 4, q.Len())
	require.Equal(t, []string{"a1", "b1", "a2"}, handedOut(t, q))
	q.Add("a1")
	q.Done("a2")
	require.Equal(t, []string{"a3"}, handedOut(t, q), "a1 is in work")
	q.Done("a1")
	require.Equal(t, []string{"a1"}, handedOut(t, q), "it has changed meanwhile")
	for _, item := range []string{"a1", "a3", "b1"} {
		q.Done(item)
	}
	require.Zero(t, q.Len())
	require.Empty(t, q.taken)
	require.Empty(t, q.working)
	require.Empty(t, q.queued)
}

// Items with a limit leave the others room, and the end of one item may let several workers begin.
func TestQueueLimits(t *testing.T) {
	q := byPrefix(100, func(item string) (limits []Limit) {
		limits = append(limits, Limit{item[:1], 4})
		if strings.Contains(item, "failed") {
			limits = append(limits, Limit{item[:1] + " failed", 2})
		}
		return limits
	})
	for i := range 4 {
		q.Add(fmt.Sprint("a-failed", i))
	}
	for i := range 4 {
		q.Add(fmt.Sprint("a", i))
	}
	require.Equal(t, []string{"a-failed0", "a-failed1", "a0", "a1"}, handedOut(t, q))
	q.Done("a-failed0")
	require.Equal(t, []string{"a-failed2"}, handedOut(t, q))
	q.Done("a0")
	require.Equal(t, []string{"a2"}, handedOut(t, q), "those that have failed have their share")
}

// Workers that wait are woken by items, by the end of others, and by the end of the queue.
func TestQueueWakesWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := byPrefix(8, nil)
		begun := make(chan string, 8)
		for range 8 {
			go func() {
				for {
					item, shutdown := q.Get()
					if shutdown {
						return
					}
					begun <- item
				}
			}()
		}
		synctest.Wait()
		for i := range 5 {
			q.Add(fmt.Sprint("a", i))
			synctest.Wait()
		}
		require.Len(t, begun, 4)
		q.Done("a0")
		synctest.Wait()
		require.Len(t, begun, 5)
		q.ShutDown()
		synctest.Wait()
		require.True(t, q.ShuttingDown())
		drained := false
		go func() {
			q.ShutDownWithDrain()
			drained = true
		}()
		synctest.Wait()
		require.False(t, drained)
		<-begun // a0
		for len(begun) > 0 {
			q.Done(<-begun)
		}
		synctest.Wait()
		require.True(t, drained)
	})
}
