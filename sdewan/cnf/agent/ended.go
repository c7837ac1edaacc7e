package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"subctl/dataplane"
)

// endTime bounds the end of the tunnels. Usually the daemon ends within a tenth of a second; one
// that has not after 3 seconds is killed (stopTimeout of package strongswan). The pod of a CNF has
// 10 seconds from SIGTERM to SIGKILL (sdewan/install). The rest is for the pass that is in
// progress, whose current step is not interrupted: it may be the start of the daemon, which takes
// up to 10 seconds, but then there are no tunnels yet.
const endTime = 4 * time.Second

// endTunnels ends the IKE daemon when the agent ends, in time for the daemon to tell the other ends
// that their tunnels have ended. CNFs begin again at once, and try until the next pod answers;
// another strongSwan does what its close_action says, and not its dpd_action. In a pod, the daemon
// ends with the agent anyway, but killed by the kernel: then other ends notice only after 20
// seconds of silence (cnf.dpdDelay).
//
// Only the daemon ends, which tells all other ends at once; to unload thousands of connections one
// by one takes too long. The rest is as after a crash of the daemon: packets for the networks of
// tunnels are dropped, and the next agent, if there is one in this pod, repairs what it finds.
func (a *Agent) endTunnels(ctx context.Context, target dataplane.Target) {
	daemon, runs := endable(a.planned)
	if !runs {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	ended := make(chan error, 1)
	// it may wait for the daemon without regard to ctx
	go func() { ended <- target.Apply(ctx, dataplane.Op{Old: daemon}) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = fmt.Errorf("the IKE daemon has not ended within %v", endTime)
	}
	if err != nil {
		a.Log.Warn("other ends of tunnels may notice late that the CNF has ended", "err", err)
		return
	}
	a.Log.Info("ended the tunnels")
}

// endable returns the IKE daemon of a plan. It reports false if there is none, or a connection is
// in transport mode: without the daemon, its packets would leave in clear, while what a killed
// daemon leaves in the kernel continues to encrypt them.
func endable(plan dataplane.State) (daemon dataplane.IKEDaemon, ok bool) {
	for _, o := range plan {
		switch o := o.(type) {
		case dataplane.IKEDaemon:
			daemon = o
			ok = true
		case dataplane.IKERemote:
			if slices.ContainsFunc(o.Children, func(c dataplane.IKEChild) bool {
				return c.Mode == dataplane.TransportMode
			}) {
				return dataplane.IKEDaemon{}, false
			}
		}
	}
	return daemon, ok
}
