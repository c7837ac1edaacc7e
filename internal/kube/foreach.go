package kube

import "sync"

// atATime is the number of requests that a command makes at a time: a broker may have 1,000
// clustersets.
const atATime = 8

// ForEach calls f with the index of each item, for some items at a time. After an error, it calls f
// for no further items. It returns the error of the first item, in their order.
func ForEach[T any](items []T, f func(i int, item T) error) error {
	var mu sync.Mutex
	var group sync.WaitGroup
	next := 0
	failed := false
	errs := make([]error, len(items))
	take := func() (i int, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		i = next
		next++
		return i, i < len(items) && !failed
	}
	for range min(atATime, len(items)) {
		group.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				if errs[i] = f(i, items[i]); errs[i] != nil {
					mu.Lock()
					failed = true
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
