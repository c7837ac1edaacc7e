package parts

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// written is a lease that counts what is written to it.
type written struct {
	resourcelock.Interface
	n   int
	err error
}

func (w *written) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	w.n++
	return w.err
}

// The holder of a lease renews it with every second attempt, as long as nothing else changes and
// the last one was successful.
func TestSeldom(t *testing.T) {
	start := time.Now()
	w := &written{}
	l := &rareRenewals{Interface: w, every: 3 * time.Second / 2}
	update := func(second int, holder string, transitions int) {
		_ = l.Update(t.Context(), resourcelock.LeaderElectionRecord{
			HolderIdentity:    holder,
			LeaderTransitions: transitions,
			RenewTime:         metav1.NewTime(start.Add(time.Duration(second) * time.Second)),
		})
	}
	for second := range 10 {
		update(second, "gw", 1)
	}
	require.Equal(t, 5, w.n)
	w.err = errors.New("no API server")
	update(10, "gw", 1)
	update(11, "gw", 1)
	update(12, "gw", 1)
	require.Equal(t, 8, w.n, "after a failure, it is tried each time")
	w.err = nil
	update(13, "gw", 1)
	update(14, "gw", 1)
	require.Equal(t, 9, w.n)
	update(14, "", 1)
	require.Equal(t, 10, w.n, "it is released")
	update(15, "gw", 2)
	require.Equal(t, 11, w.n, "it is acquired again")
	update(16, "gw", 2)
	require.Equal(t, 11, w.n)
}
