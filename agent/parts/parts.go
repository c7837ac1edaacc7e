// Package parts is what runs beside the loop of an agent: the election among the gateways,
// pings, path discovery, the exchange with the broker, and so on. Parts have the clocks,
// clients and sockets that package mesh does not have; they decide nothing about the
// node's kernel.
//
// A part is a manager.Runnable. If it is an Observer it adds to every snapshot what it
// knows, and if it is an Actor it follows every plan. When it learns something new it
// triggers the loop.
package parts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"subctl/agent/discovery"
	"subctl/agent/probe"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
	"subctl/internal/proxy"
)

// Observer is a part that adds to snapshots.
type Observer interface {
	// Observe adds what the part knows. The error is ErrTooEarly if the part does not yet
	// know enough for any plan to be made: then it triggers the loop once it does.
	Observe(*role.Snapshot) error
}

// Actor is a part that follows plans.
type Actor interface {
	// Act follows a plan that the node was made to hold, or failed to hold, and adds to
	// the outcome. Plan.Decisions is nil if the snapshot has a mistake: then nothing changes.
	Act(role.Snapshot, role.Plan, *role.Outcome)
}

// Idler is a part that may have to stop while no plan can be made.
type Idler interface {
	// Idle is called with a snapshot from which no plan should be made yet: see ErrTooEarly.
	Idle(role.Snapshot)
}

// Prober is a part whose news the node follows at once, without a new Snapshot.
type Prober interface {
	// Refresh replaces what the part knows in a copy of a snapshot.
	Refresh(*role.Snapshot)
}

// ErrTooEarly is the error of a snapshot from which no plan should be made yet. The agent
// leaves the node as it finds it.
var ErrTooEarly = errors.New("too early to plan")

// Options are the settings of a part. The fields at the top are the same for all agents.
type Options struct {
	Node   string // name of the node
	Pod    string // name of the pod; empty if the agent runs in none
	Config *rest.Config
	Log    *slog.Logger
	// Trigger makes the loop run again soon.
	Trigger func()
	// Reroute makes the node follow a Prober at once; nil: the loop does.
	Reroute func()
	// Announce writes the Endpoint of this gateway.
	Announce func(context.Context, *submarinerv1.Endpoint) error
	// Warn writes an Event about an object whose condition is False.
	Warn func(about client.Object, c metav1.Condition)
	// Restarted is called when a program that cables depend on was found dead and started
	// again, with how often that happened since the last call.
	Restarted func(program string, times int)
	// Dropped is called with the packets that the node has dropped between clusters since the last
	// call, for each cluster that it knows.
	Dropped func(clusters, reasons map[string]uint64)
	// Cabler returns the kernel's view of the cables; nil if there is none.
	Cabler func() dataplane.Cabler
	// Ignored is called when an answer to a probe was ignored.
	Ignored func()
	// ListenEchoes opens a socket for echoes to a UDP port, which reads size bytes of each; nil if
	// there are none.
	ListenEchoes func(ctx context.Context, port, size int) (probe.Echoes, error)
	// NewArrivals reads size bytes of each packet from a socket. If it is nil, a packet arrives
	// when the agent reads it.
	NewArrivals func(conn syscall.Conn, size int) (probe.Arrivals, error)
	// ProbeForwarding is dataplane/kernel/probe.Forwarding; nil if there is no kernel.
	ProbeForwarding func(p dataplane.ForwardProbe, last uint32) (dataplane.Forwarded, error)
	// ListenUDP opens a UDP port on all of the node's addresses.
	ListenUDP func(ctx context.Context, port int) (discovery.Datagrams, error)

	Lease     Lease  // of the election
	Secrets   string // directory of the Secrets with the keys of cables, each in a directory of its name
	BrokerDir string // directory of the Secret with the broker's credentials
	// Proxy are the proxies of the environment. Only the broker is reached through them.
	Proxy proxy.Settings
}

// constructors make the parts by name. They start nothing.
var constructors = map[role.Part]func(Options) (manager.Runnable, error){
	role.Election:    func(o Options) (manager.Runnable, error) { return newElector(o) },
	role.KeyRing:     func(o Options) (manager.Runnable, error) { return newKeyRing(o), nil },
	role.Probing:     func(o Options) (manager.Runnable, error) { return newProber(o), nil },
	role.Discovery:   func(o Options) (manager.Runnable, error) { return newPathFinder(o), nil },
	role.PublicIP:    func(o Options) (manager.Runnable, error) { return newPublicIP(o), nil },
	role.KernelView:  func(o Options) (manager.Runnable, error) { return newKernelView(o), nil },
	role.Drops:       func(o Options) (manager.Runnable, error) { return newDrops(o), nil },
	role.Forwarding:  func(o Options) (manager.Runnable, error) { return newForwarding(o), nil },
	role.FlowCount:   func(o Options) (manager.Runnable, error) { return newFlows(o), nil },
	role.Networks:    func(o Options) (manager.Runnable, error) { return newNetworkWatch(o) },
	role.Agents:      func(o Options) (manager.Runnable, error) { return newAgents(o) },
	role.APIServers:  func(o Options) (manager.Runnable, error) { return newAPIServers(o) },
	role.Leader:      func(o Options) (manager.Runnable, error) { return newLeader(o) },
	role.ClusterDNS:  func(o Options) (manager.Runnable, error) { return newClusterDNS(o) },
	role.Discoverer:  func(o Options) (manager.Runnable, error) { return newServiceDiscovery(o) },
	role.Allocations: func(o Options) (manager.Runnable, error) { return newAllocations(o) },
	role.Exchange:    func(o Options) (manager.Runnable, error) { return newExchanger(o), nil },
}

func newProber(o Options) *probe.Prober {
	return probe.New(probe.Options{
		Log: o.Log, Trigger: o.Trigger, Reroute: o.Reroute, Ignored: o.Ignored, ListenEchoes: o.ListenEchoes,
		NewArrivals: o.NewArrivals,
	})
}

// New returns the parts of a role, in the order in which they complete a snapshot.
func New(names []role.Part, o Options) ([]manager.Runnable, error) {
	var out []manager.Runnable
	for _, name := range names {
		construct, ok := constructors[name]
		if !ok {
			return nil, fmt.Errorf("there is no part %q", name)
		}
		p, err := construct(o)
		if err != nil {
			return nil, fmt.Errorf("setting up the %s: %w", name, err)
		}
		out = append(out, p)
	}
	return out, nil
}
