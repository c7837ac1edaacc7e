package parts

import (
	"context"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// seldom is a lease that its holder renews less often than the elector attempts to: a request takes
// more than a millisecond of CPU time, and so an idle gateway would do little else. The elector
// attempts as often as before if it does not hold the lease, or could not renew it.
type seldom struct {
	resourcelock.Interface
	every time.Duration // between two renewals, at least
	last  resourcelock.LeaderElectionRecord
}

// Update implements resourcelock.Interface.
func (l *seldom) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	same := r.HolderIdentity == l.last.HolderIdentity && r.LeaderTransitions == l.last.LeaderTransitions
	if same && r.RenewTime.Sub(l.last.RenewTime.Time) < l.every {
		return nil
	}
	l.last = resourcelock.LeaderElectionRecord{}
	err := l.Interface.Update(ctx, r)
	if err == nil {
		l.last = r
	}
	return err
}
