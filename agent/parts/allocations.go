package parts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"subctl/agent/mesh"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/globalnet"
	"subctl/internal/alarm"
)

// The lease of the globalnet agent (upstream's timing). An agent that loses it ends, as it must write nothing
// any more.
const (
	allocatorLease = 20 * time.Second
	allocatorRenew = 15 * time.Second
	allocatorRetry = 2 * time.Second
)

const (
	usedKey       = "used"          // of the ConfigMap submarinerv1.GlobalnetMemory
	recordTimeout = 5 * time.Second // of reading and writing the record
	recordRetry   = time.Second
)

// allocations makes sure that one agent allocates global addresses, and that this one knows what has been used:
// it writes all addresses that are held or rest to a ConfigMap before anybody gets them. Its successor reads it
// from the API server itself. So neither an address that a deleted object had a moment ago, nor one whose status
// its cache does not show yet, is given to anybody else.
type allocations struct {
	Options
	client  kubernetes.Interface
	leading atomic.Pointer[context.Context] // done when the lease is lost; nil: another agent has it
	memory  *globalnet.Memory               // nil until it has been read
	record  string                          // as it was last written
	lacking map[types.UID]time.Time         // mesh.Addresses.Lacking
	failed  alarm.Alarm
}

func newAllocations(o Options) (*allocations, error) {
	c, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return nil, err
	}
	return &allocations{Options: o, client: c}, nil
}

// Start holds the lease until ctx is done.
func (a *allocations) Start(ctx context.Context) error {
	le, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: submarinerv1.GlobalnetLease, Namespace: submarinerv1.OperatorNamespace},
			Client:     a.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: a.Node + "-" + string(uuid.NewUUID())},
		},
		LeaseDuration: allocatorLease, RenewDeadline: allocatorRenew, RetryPeriod: allocatorRetry, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				a.leading.Store(&ctx)
				a.Nudge()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("setting up the lease of the globalnet agent: %w", err)
	}
	if le.Run(ctx); ctx.Err() == nil {
		return errors.New("the lease " + submarinerv1.GlobalnetLease + " could not be renewed, so another agent may allocate addresses: this one ends")
	}
	return nil
}

// Observe implements Observer.
func (a *allocations) Observe(s *mesh.Snapshot) error {
	if ctx := a.leading.Load(); ctx == nil || (*ctx).Err() != nil {
		return ErrTooEarly
	}
	if a.memory == nil {
		ctx, cancel := context.WithTimeout(*a.leading.Load(), recordTimeout)
		defer cancel()
		cm, err := a.client.CoreV1().ConfigMaps(submarinerv1.OperatorNamespace).Get(ctx, submarinerv1.GlobalnetMemory, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading which global addresses have been used: %w", err)
		}
		a.record = cm.Data[usedKey]
		network, _ := mesh.GlobalNetwork(*s) // the plan reports a mistake
		memory, err := globalnet.Recall(network, a.record)
		if err != nil {
			a.Log.Warn("ConfigMap "+submarinerv1.GlobalnetMemory, "error", err)
		}
		a.memory = memory
	}
	s.Allocated, s.Lacking = a.memory, a.lacking
	return nil
}

// Act implements Actor: it records what is about to be given to objects. If that fails, out says so, and nobody
// gets anything.
func (a *allocations) Act(_ mesh.Snapshot, p mesh.Plan, out *mesh.Outcome) {
	if p.Addresses == nil {
		return
	}
	a.memory, a.lacking = p.Addresses.Memory, p.Addresses.Lacking
	all, others := a.memory.Recorded(a.record)
	if all && (!others || a.memory.Usage().Resting > 0) {
		return // what is too much in it disappears when nothing rests
	}
	record := a.memory.Record()
	if err := a.write(record); err != nil {
		err = fmt.Errorf("recording the used global addresses: %w", err)
		a.failed.Report(a.Log, slog.LevelWarn, "no global address is allocated", err)
		out.Err, out.Contained = errors.Join(out.Err, err), false
		time.AfterFunc(recordRetry, a.Nudge)
		return
	}
	a.failed.Report(a.Log, slog.LevelWarn, "no global address is allocated", nil)
	a.record = record
}

func (a *allocations) write(record string) error {
	ctx, cancel := context.WithTimeout(*a.leading.Load(), recordTimeout)
	defer cancel()
	maps := a.client.CoreV1().ConfigMaps(submarinerv1.OperatorNamespace)
	cm, err := maps.Get(ctx, submarinerv1.GlobalnetMemory, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		cm = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.GlobalnetMemory}, Data: map[string]string{usedKey: record}}
		_, err = maps.Create(ctx, cm, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	if cm.Data == nil {
		cm.Data = map[string]string{}
	}
	cm.Data[usedKey] = record
	_, err = maps.Update(ctx, cm, metav1.UpdateOptions{})
	return err
}
