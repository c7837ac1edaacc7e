package parts

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
	"subctl/internal/alarm"
)

// reasonRestarted is the reason of the Event about a program that was started again.
const reasonRestarted = "CableProgramRestarted"

// kernelView adds the kernel's view of encrypted cables to snapshots, and reports when a program
// that cables depend on (charon, wireguard-go) had to be started again.
type kernelView struct {
	Options
	restarts map[string]int // by program, as far as they were reported
	failed   alarm.Alarm    // reading the state of the cables
	keyless  bool           // cables of the last plan wait for keys
}

func newKernelView(o Options) *kernelView { return &kernelView{Options: o} }

// Start waits until ctx is done: the loop itself watches the kernel.
func (k *kernelView) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Observe implements Observer.
func (k *kernelView) Observe(s *role.Snapshot) error {
	s.Cables = k.states(*s)
	return nil
}

// Refresh implements Prober: a cable that was waiting for keys may be what is left when another one
// fails. Otherwise it costs nothing.
func (k *kernelView) Refresh(s *role.Snapshot) {
	if !k.keyless {
		return
	}
	if states := k.states(*s); states != nil {
		s.Cables = states
	}
}

// states returns the states of the cables; nil if they are unknown.
func (k *kernelView) states(s role.Snapshot) []dataplane.CableState {
	c := k.Cabler()
	if c == nil || !s.Standing.Active {
		return nil
	}
	states, err := c.CableStates()
	k.failed.Report(k.Log, slog.LevelWarn, "reading the state of the cables", err) // pings tell, too
	if err == nil && states == nil {
		return []dataplane.CableState{} // it is known that there are none
	}
	return states
}

// Act implements Actor: it reports programs that were started again.
func (k *kernelView) Act(s role.Snapshot, p role.Plan, _ *role.Outcome) {
	k.keyless = mesh.PlanOf(p).Keyless
	c := k.Cabler()
	if c == nil {
		return
	}
	now := c.Restarts()
	for _, program := range slices.Sorted(maps.Keys(now)) {
		n := now[program] - k.restarts[program]
		if n == 0 {
			continue
		}
		k.Restarted(program, n)
		k.Log.Warn("restarted", "program", program)
		if g := role.Find[*submarinerv1.Gateway](s, s.Node); g != nil {
			message := fmt.Sprintf(
				"%s was found dead, or not answering, and was started again: cables through it were interrupted. Its own messages are in the log of the gateway's pod",
				program)
			k.Warn(g, metav1.Condition{Type: "Restart", Reason: reasonRestarted, Message: message})
		}
	}
	k.restarts = now
}
