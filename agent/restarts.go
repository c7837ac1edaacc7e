package agent

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
)

// reasonRestarted is that of the Event about a program that was started again.
const reasonRestarted = "CableProgramRestarted"

// tellRestarts counts the programs that cables depend on and that were found dead, and
// writes an Event about each: charon, or wireguard-go.
func (a *agent) tellRestarts(s Snapshot) {
	t := a.cabler()
	if t == nil {
		return
	}
	now := t.Restarts()
	for _, program := range slices.Sorted(maps.Keys(now)) {
		n := now[program] - a.restarts[program]
		if n == 0 {
			continue
		}
		a.meters.restarts.WithLabelValues(program).Add(float64(n))
		message := fmt.Sprintf("%s was found dead, or not answering, and was started again: cables through it were interrupted. Its own messages are in the log of the gateway's pod", program)
		a.Log.Warn("restarted", "program", program)
		if g := find[*submarinerv1.Gateway](s, a.Name); g != nil {
			a.warn(g, metav1.Condition{Type: "Restart", Reason: reasonRestarted, Message: message})
		}
	}
	a.restarts = now
}
