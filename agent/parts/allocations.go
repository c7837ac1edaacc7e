package parts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/globalnet"
	"subctl/globalnet/allocator"
	"subctl/internal/alarm"
)

// allocatorLease is the timing of the lease of the globalnet agent (upstream's).
var allocatorLease = Lease{Duration: 20 * time.Second, Renew: 15 * time.Second, Retry: 2 * time.Second}

const (
	usedKey       = "used"          // of the ConfigMap submarinerv1.GlobalnetMemory
	recordTimeout = 5 * time.Second // of reading and writing the record
	recordRetry   = time.Second
)

// allocations makes sure that one agent allocates global addresses, and that this one knows what
// has been used: it writes all addresses that are held or rest to a ConfigMap before anybody gets
// them. Its successor reads it from the API server itself. So neither an address that a deleted
// object had a moment ago, nor one whose status its cache does not show yet, is given to anybody
// else.
type allocations struct {
	Options
	client kubernetes.Interface
	leader leader
	memory allocator.AddressMemory // Allocated is nil until it has been read
	record string                  // as it was last written
	failed alarm.Alarm
}

func newAllocations(o Options) (*allocations, error) {
	c, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return nil, err
	}
	return &allocations{Options: o, client: c, leader: leader{
		lease: submarinerv1.GlobalnetLease, timing: allocatorLease, holder: leaseHolder(o),
		client: c, trigger: o.Trigger,
		consequence: "another agent may allocate addresses",
	}}, nil
}

// Start holds the lease until ctx is done.
func (a *allocations) Start(ctx context.Context) error { return a.leader.Start(ctx) }

// Observe implements Observer.
func (a *allocations) Observe(s *role.Snapshot) error {
	if err := a.leader.Observe(s); err != nil {
		return err
	}
	if a.memory.Allocated == nil {
		ctx, cancel := context.WithTimeout(*a.leader.leading.Load(), recordTimeout)
		defer cancel()
		cm, err := a.client.CoreV1().ConfigMaps(
			submarinerv1.OperatorNamespace).Get(ctx, submarinerv1.GlobalnetMemory, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading which global addresses have been used: %w", err)
		}
		a.record = cm.Data[usedKey]
		network, _ := allocator.GlobalNetwork(*s) // the plan reports a mistake
		memory, err := globalnet.Recall(network, a.record)
		if err != nil {
			a.Log.Warn("ConfigMap "+submarinerv1.GlobalnetMemory, "error", err)
		}
		a.memory.Allocated = memory
	}
	s.Previous = a.memory
	return nil
}

// Act implements Actor: it records what is about to be given to objects. If that fails, out says
// so, and nobody gets anything.
func (a *allocations) Act(_ role.Snapshot, p role.Plan, out *role.Outcome) {
	decided, is := p.Decisions.(*allocator.Addresses)
	if !is {
		return
	}
	a.memory = decided.Memory
	all, others := a.memory.Allocated.Recorded(a.record)
	if all && (!others || a.memory.Allocated.Usage().Resting > 0) {
		return // what is too much in it disappears when nothing rests
	}
	record := a.memory.Allocated.Record()
	if err := a.write(record); err != nil {
		err = fmt.Errorf("recording the used global addresses: %w", err)
		a.failed.Report(a.Log, slog.LevelWarn, "no global address is allocated", err)
		out.Err = errors.Join(out.Err, err)
		out.Contained = false
		time.AfterFunc(recordRetry, a.Trigger)
		return
	}
	a.failed.Report(a.Log, slog.LevelWarn, "no global address is allocated", nil)
	a.record = record
}

func (a *allocations) write(record string) error {
	ctx, cancel := context.WithTimeout(*a.leader.leading.Load(), recordTimeout)
	defer cancel()
	maps := a.client.CoreV1().ConfigMaps(submarinerv1.OperatorNamespace)
	cm, err := maps.Get(ctx, submarinerv1.GlobalnetMemory, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		cm = &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.GlobalnetMemory},
			Data:       map[string]string{usedKey: record},
		}
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
