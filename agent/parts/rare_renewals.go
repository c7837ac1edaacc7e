package parts

import (
	"context"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// rareRenewals is a lease that its holder renews less often than the elector requests. A renewal
// takes more than a millisecond of CPU time, and would be most of the load of an idle gateway.
// Attempts to acquire the lease, or to renew it after an error, are not delayed.
type rareRenewals struct {
	resourcelock.Interface
	every time.Duration // between two renewals, at least
	last  resourcelock.LeaderElectionRecord
}

// Update implements resourcelock.Interface.
func (l *rareRenewals) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
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
