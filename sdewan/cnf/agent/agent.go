// Package agent is the loop of a CNF: it reads what the REST API has received and what the pod's
// network is like, follows the uplinks, plans (sdewan/cnf), makes the kernel hold the plan, and
// reports.
//
// It is not a role of package agent: a CNF reads no objects of an API server. When it ends, it ends
// its tunnels, so that the other ends begin again. The kernel keeps everything else: the pod's
// network namespace ends with the pod, and the next agent in it adopts what it finds.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"subctl/dataplane"
	"subctl/sdewan"
	"subctl/sdewan/cnf"
	"subctl/sdewan/rest"
)

// The intervals of the loop.
const (
	quiet   = 50 * time.Millisecond // changes of the kernel within it lead to one pass
	resync  = 10 * time.Second      // what is not signalled is found after that time
	retry   = time.Second           // after a failure
	resolve = 30 * time.Second      // between two look-ups of the names of Services
)

// Kernel is the network namespace of the pod, and what can be done in it.
type Kernel struct {
	// Target returns the kernel as Sync needs it.
	Target func(dataplane.Owner) (dataplane.Target, error)
	// Network reads devices, routes and rules; Connections and Neighbours read at most so many
	// entries.
	Network     func() (dataplane.Network, error)
	Connections func(most int) ([]dataplane.Connection, error)
	Neighbours  func(most int) ([]dataplane.NetNeighbour, error)
	// Watch signals changes of devices, addresses, routes, rules and our table.
	Watch func(ctx context.Context, quiet time.Duration) (<-chan struct{}, error)
	// MarkConnections sets bits in the marks of connections that have other ones.
	MarkConnections func(having, set uint32) error
	// EndConnections forgets the connections whose first packet matches.
	EndConnections func(match func(first dataplane.Flow) bool) error
	// Forward makes the kernel forward packets of devices.
	Forward func(devices []string) error
	// Announce tells the neighbours at a device that it has an IPv4 address.
	Announce func(device string, ip netip.Addr) error
}

// Options are the settings and the functions that an Agent needs. All fields are required unless
// stated otherwise.
type Options struct {
	// Attachments are the networks of the pod, and Uplinks what is known of them, by the names of
	// networks.
	Attachments []sdewan.Attachment
	Uplinks     map[string]sdewan.Uplink
	// API lists the addresses that serve the REST API and the probe; an unspecified address stands
	// for the addresses of the device of the default route.
	API []netip.AddrPort
	// Config returns what the REST API has received.
	Config func() rest.Config
	Kernel Kernel
	// Ping sends pings and returns which share was lost, and how long the answers took. Optional:
	// the default uses sockets of the process.
	Ping func(context.Context, Ping) (lost float64, rtts []time.Duration, err error)
	// Lookup returns the IPv4 addresses of a name. Optional: the default is net.DefaultResolver.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	Log    *slog.Logger
}

// Agent is the loop of a CNF.
type Agent struct {
	Options
	wake     chan struct{}
	passed   func(planned rest.Config) // is called after each pass, by tests
	trackers []*tracker                // in the order of Attachments; nil for those that are not tracked
	changes  atomic.Uint64             // the number of calls of Changed
	linger   time.Duration             // linger, or less in tests
	memory   memory                    // is used by passes alone
	claims   claims                    // likewise
	choice   choice                    // likewise: the one by which unanswered connections were last routed
	planned  dataplane.State           // likewise: by the last pass
	culprits culprits                  // likewise
	judged   *rest.Config              // likewise: by whose rules connections were ended last
	refusing string                    // likewise: what was refused of the last plan, as it was logged

	mu       sync.Mutex
	ready    bool
	report   cnf.Report
	err      error
	seen     uint64        // changes when the last pass began
	ended    chan struct{} // is closed when the next pass ends
	world    cnf.World
	network  dataplane.Network
	resolved map[string]netip.Addr
	since    map[string]time.Time // when each interface went up
	target   dataplane.Target     // nil until Run has begun
}

// New returns an Agent.
func New(o Options) *Agent {
	if o.Ping == nil {
		o.Ping = ping
	}
	if o.Lookup == nil {
		o.Lookup = lookup
	}
	a := &Agent{
		Options:  o,
		wake:     make(chan struct{}, 1),
		linger:   linger,
		ended:    make(chan struct{}),
		passed:   func(rest.Config) {},
		resolved: map[string]netip.Addr{},
		since:    map[string]time.Time{},
	}
	for i, at := range o.Attachments {
		var t *tracker
		if u := o.Uplinks[at.Network]; len(u.TrackIPs) > 0 {
			t = newTracker(at.Device, cnf.UplinkMark(i+1), u)
		}
		a.trackers = append(a.trackers, t)
	}
	return a
}

// Changed makes the loop look again. It does not block.
func (a *Agent) Changed() {
	a.changes.Add(1)
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Ready reports whether the kernel has held a plan once.
func (a *Agent) Ready() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ready
}

// Report returns what the last plan left out, and what the kernel refused.
func (a *Agent) Report() (cnf.Report, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.report), a.err
}

// Run runs the loop until the context ends. All calls of Kernel that change what packets meet are
// made by the goroutine that calls it.
func (a *Agent) Run(ctx context.Context) error {
	target, err := a.Kernel.Target(dataplane.CNFOwner)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.target = target
	a.mu.Unlock()
	news, err := a.Kernel.Watch(ctx, quiet)
	if err != nil {
		return fmt.Errorf("watching the kernel: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx) // an error ends the parts, too
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	defer a.endTunnels(ctx, target)
	for _, t := range a.trackers {
		if t != nil {
			judged := func(q cnf.Quality) bool { return a.judgedAnew(t.device, q) }
			parts.Go(func() { t.run(ctx, a.Ping, judged, a.Changed) })
		}
	}
	parts.Go(func() { a.resolve(ctx) })
	timer := time.NewTimer(resync)
	defer timer.Stop()
	for {
		wait := resync
		if err := a.pass(ctx, target); err != nil && ctx.Err() == nil {
			wait = retry
		} else if a.refusing != "" {
			wait = refusedAgain
		}
		timer.Reset(a.claims.next(time.Now(), a.memory.next(time.Now(), wait)))
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		case _, open := <-news:
			if !open && ctx.Err() == nil {
				return errors.New("the kernel is no longer watched")
			}
		case <-timer.C:
		}
	}
}

// pass plans once, and makes the kernel hold the plan.
func (a *Agent) pass(ctx context.Context, target dataplane.Target) error {
	seen := a.changes.Load()
	defer a.end(seen)
	network, err := a.Kernel.Network()
	if err != nil {
		last, _ := a.Report() // nothing was planned
		a.result(last, fmt.Errorf("reading the network: %w", err))
		return err
	}
	world := a.look(network)
	var names []string
	for _, d := range network.Devices {
		if !d.Loopback && d.Name != dataplane.CNFTunnelDevice { // the plan has its settings, which differ
			names = append(names, d.Name)
		}
	}
	config := a.Config()
	world.Left = a.memory.note(config, world.Now, a.linger)
	planned, state, report, ops, err := a.hold(ctx, target, config, world)
	a.planned = state
	steered := steers(state, err)
	refused, err := attribute(err, a.refuses(err, planned, world))
	report = append(report, refused...)
	if steered {
		err = errors.Join(err, a.judge(planned, world))
		a.routed()
		err = errors.Join(err, a.chooseAnew(choiceOf(planned, world)))
	}
	if err == nil || a.Ready() { // not before the kernel holds rules
		err = errors.Join(err, a.Kernel.Forward(names))
	}
	if ctx.Err() != nil {
		return nil
	}
	for _, op := range ops {
		a.Log.Info("changed the kernel", "op", short(op.String()))
	}
	a.result(report, err)
	a.announce(network, a.Ready() && !config.Awaiting)
	a.passed(config)
	return err
}

// hold makes the kernel hold the plan of a configuration, without the objects that it refuses,
// which are in the report.
func (a *Agent) hold(
	ctx context.Context, target dataplane.Target, config rest.Config, world cnf.World,
) (planned rest.Config, state dataplane.State, report cnf.Report, ops []dataplane.Op, err error) {
	for {
		var out cnf.Report
		planned, out = a.culprits.without(config, world.Now)
		state, report = cnf.Plan(planned, world)
		report = append(report, out...)
		var more []dataplane.Op
		more, err = dataplane.Sync(ctx, target, state)
		ops = append(ops, more...)
		if !refusesTable(err) || !a.culprits.search(ctx, target, planned, world, world.Now) {
			return planned, state, report, ops, err
		}
	}
}

// refuses returns the origins of what a plan has, if something of it is refused, and logs this
// once: the reasons in the report have nothing of what charon says.
func (a *Agent) refuses(err error, planned rest.Config, world cnf.World) map[dataplane.Key][]cnf.Origin {
	var drift *dataplane.DriftError
	if !errors.As(err, &drift) {
		a.refusing = ""
		return nil
	}
	if said := err.Error(); said != a.refusing {
		a.refusing = said
		a.Log.Warn("the kernel or charon refuses a part of the plan", "err", err)
	}
	return cnf.Origins(planned, world)
}

// judge ends the connections that new rules of the firewall refuse. The kernel holds the rules.
func (a *Agent) judge(now rest.Config, world cnf.World) error {
	before := a.judged
	if before == nil { // the agent has just begun: which rules are new is not known
		a.judged = &now
		return nil
	}
	if refuses := cnf.Refuses(*before, now, world); refuses != nil {
		if err := a.Kernel.EndConnections(refuses); err != nil {
			return err
		}
	}
	a.judged = &now
	return nil
}

// routed notes that the kernel holds the plan for the devices that are up.
func (a *Agent) routed() {
	for _, t := range a.trackers {
		if t != nil {
			t.routed()
		}
	}
}

// end ends a pass, which has seen so many changes.
func (a *Agent) end(seen uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = seen
	close(a.ended)
	a.ended = make(chan struct{})
}

// short bounds how much of a step is logged: a table may have thousands of rules.
func short(op string) string {
	const most = 1000
	if len(op) > most {
		return op[:most] + " …"
	}
	return op
}

// result remembers the outcome of a pass, and logs what is new.
func (a *Agent) result(report cnf.Report, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := make(map[cnf.Line]bool, len(a.report))
	for _, l := range a.report {
		known[l] = true
	}
	for _, l := range report {
		if !known[l] {
			a.Log.Warn("an object has no effect, or part of it has none", "object", l.Collection+"/"+l.Name, "reason",
				l.Message)
		}
	}
	if err != nil && (a.err == nil || a.err.Error() != err.Error()) {
		a.Log.Error("the kernel does not hold the plan: trying again", "err", err)
	}
	if err == nil && !a.ready {
		a.ready = true
		a.Log.Info("ready")
	}
	a.report = report
	a.err = err
}
