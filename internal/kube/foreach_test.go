package kube

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestForEach(t *testing.T) {
	items := make([]int, 1000)
	for i := range items {
		items[i] = i
	}
	synctest.Test(t, func(t *testing.T) {
		out := make([]int, len(items))
		began := time.Now()
		require.NoError(t, ForEach(items, func(i, item int) error {
			time.Sleep(time.Millisecond)
			out[i] = item
			return nil
		}))
		require.Equal(t, items, out)
		require.Equal(t, time.Duration(len(items)/atATime)*time.Millisecond, time.Since(began),
			"some at a time, and no more")
	})
	require.NoError(t, ForEach(nil, func(int, int) error { return errors.New("there is no item") }))
}

// An error ends it: the rest would fail for the same reason. The first error is returned, not the
// fastest one.
func TestForEachError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := make([]bool, 1000)
		err := ForEach(calls, func(i int, _ bool) error {
			calls[i] = true
			time.Sleep(time.Duration(atATime-i%atATime) * time.Millisecond)
			return fmt.Errorf("item %d", i)
		})
		require.EqualError(t, err, "item 0")
		require.False(t, calls[atATime])
	})
}
