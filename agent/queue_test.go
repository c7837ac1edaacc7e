package agent

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The agent's queue has no timer of half a second, as a queue with metrics has.
func TestQueueHasNoTimer(t *testing.T) {
	q := unmeasured("gateway", backoff())
	defer q.ShutDown()
	q.Add(everything)
	got, down := q.Get()
	require.Equal(t, everything, got)
	require.False(t, down)
	q.Done(got)
	time.Sleep(10 * time.Millisecond) // for goroutines to start
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	require.Contains(t, string(stacks), "priorityqueue")
	require.False(t, strings.Contains(string(stacks), "updateUnfinishedWorkLoop"), "%s", stacks)
}
