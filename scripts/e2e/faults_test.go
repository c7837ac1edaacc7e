//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/measure"
)

// A fault happens to one gateway, the victim, while packets flow: of cluster1, where the flows come
// from, or of cluster2, where their Service is. What a step does may fail the test.
type fault struct {
	name     string
	before   func(t *testing.T, s *scene, victim string)             // before the flows begin; may be nil
	happen   func(t *testing.T, s *scene, victim string) (moved int) // returns how many flows moved needlessly
	undo     func(t *testing.T, s *scene, victim string)             // after the flows have ended; may be nil
	far      bool                                                    // the victim is of cluster2
	needsAPI bool                                                    // it cannot happen without API servers
	undoAPI  bool                                                    // it can happen without them, but not be undone
	// limits of the gap, in ms: less than it is watched
	p99, max float64
	size     int // of the datagrams, in bytes
	// the gateways whose flows it may interrupt; nil: the victim
	concerns func(s *scene, victim string) []string
}

// How long flows are watched after a fault: longer than any gap may be, so that a gap that has not
// ended exceeds its limit, too; longer than the 2 s after which connections leave a gateway that
// does not answer, so that those that leave another one without need are seen; and until an agent
// that was killed is there again. A connection that survives does so also if it is watched for
// less.
var watched, watchedAgent = lasts(2500*time.Millisecond, time.Second), lasts(5*time.Second, 2*time.Second)

// lasts returns how long something lasts where it is measured, or where it is only seen to work.
func lasts(measured, seen time.Duration) time.Duration {
	if failoverRuns > 0 {
		return measured
	}
	return seen
}

// strikes returns what happens if a fault begins at once.
func strikes(
	watched time.Duration,
	begin func(t *testing.T, s *scene, victim string),
) func(*testing.T, *scene, string) int {
	return func(t *testing.T, s *scene, victim string) int {
		return s.moved(t, victim, func() {
			s.struck[0] = time.Now()
			begin(t, s, victim)
			s.struck[1] = time.Now()
			s.clock.lap("fault")
			time.Sleep(watched)
			s.clock.lap("watch")
		})
	}
}

// The faults' drops are in a table of their own, so that agents cannot repair them.
const faultTable = "table inet fault"

func dropping(chain string) func(*testing.T, *scene, string) int {
	return strikes(watched, func(t *testing.T, s *scene, victim string) {
		on(
			t,
			victim,
			fmt.Sprintf("nft '%s { chain c { %s }; }'", faultTable,
				strings.ReplaceAll(chain, "REMOTE", strings.Join(s.remote, ", "))),
		)
	})
}

// forgetPathMTUs makes pods and nodes forget what they have learned about paths that carry only
// smaller packets. A gateway that finds such a path tells pods, which cut their packets for ten
// minutes: they would not notice the next fault.
func forgetPathMTUs(t *testing.T, s *scene, _ string) {
	eventually(t, time.Minute, func() error {
		for node, out := range together(everyNode(), func(n string) (string, error) {
			return sh("lab", "exec", n, "--", "ip", "route", "show", "table", "all")
		}) {
			if narrow := narrowRoute.FindString(out.text); narrow != "" || out.err != nil {
				return fmt.Errorf("%s: %s: %v", node, narrow, out.err)
			}
		}
		return nil
	})
	for _, node := range everyNode() {
		on(t, node, "ip route flush cache")
	}
	for _, c := range []container{s.inside, s.far} {
		on(t, c.node, "nsenter -t "+c.pid+" -n ip route flush cache")
	}
}

// narrowRoute matches a route whose MTU is smaller than the packets of the flows, 1228 bytes.
var narrowRoute = regexp.MustCompile(`(?m)^.* mtu (\d{1,3}|1[01]\d\d|12[0-2]\d)\b.*$`)

func dropNothing(t *testing.T, _ *scene, victim string) { on(t, victim, "nft delete "+faultTable) }

// pathTo returns a change of the path between the victim and another: cut or heal.
func pathTo(verb string, other func(*scene) string) func(*testing.T, *scene, string) {
	return func(t *testing.T, s *scene, victim string) { must(t, "lab", verb, victim, other(s)) }
}

// killNode is a power cut. From the moment of the cut, no packet from or to the node arrives, also
// not those with which its kernel closes the connections of its processes when they end. Its
// network stays until removeNode: while the kernel removes it, the other nodes wait.
func killNode(t *testing.T, _ *scene, victim string) {
	must(t, "lab", "cut", victim)
	must(t, "lab", "kill", "--keep-network", victim)
}

// removeNode removes the network of a node that was killed. A node with its network would forward
// packets once its cut is healed.
func removeNode(t *testing.T, victim string) { must(t, "lab", "kill", victim) }

// reviveNode boots a node that was killed. A node that boots keeps processors busy, and is not
// favored meanwhile.
func reviveNode(t *testing.T, s *scene, victim string) {
	removeNode(t, victim)
	favor(t, 1, victim)
	must(t, "lab", "heal", victim)
	must(t, "lab", "start", victim)
	s.clock.lap("boot")
	s.settled(t)
	favor(t, favored, victim)
	s.clock.lap("settle")
}

func killAgents(t *testing.T, _ *scene, victim string) { on(t, victim, "pkill -9 -x subctl") }

// renewAgents waits for the agents of a node. A new kubelet does not make them wait for having
// failed often.
func renewAgents(t *testing.T, _ *scene, victim string) {
	on(t, victim, "pkill -f '[l]abkube kubelet'")
	eventually(t, 30*time.Second, func() error {
		if n := strings.Count(metrics(t, victim), "\nsubmariner_sync_duration_seconds_count"); n != 2 {
			return fmt.Errorf("%d agents of %s are at work, not 2", n, victim)
		}
		return nil
	})
}

// gatewayCommand returns a run of "subctl gateway".
func gatewayCommand(verb string) func(*testing.T, *scene, string) {
	return func(t *testing.T, _ *scene, victim string) {
		must(t, "subctl", "gateway", verb, victim, "--context", "cluster1")
	}
}

// inTurn kills every gateway of cluster1, each when the one before it is back.
func inTurn(t *testing.T, s *scene, first string) (moved int) {
	for i := range s.gateways {
		if i > 0 {
			back := s.after(first, i-1) // until then, its idle connections may still move
			moved += s.moved(t, back, func() { reviveNode(t, s, back) })
		}
		moved += strikes(watched, killNode)(t, s, s.after(first, i))
	}
	return moved
}

// after returns the gateway that is n places after another.
func (s *scene) after(gateway string, n int) string {
	return s.gateways[(slices.Index(s.gateways, gateway)+n)%len(s.gateways)]
}

// faults are all faults. Where one after another happens without API servers, those that can be
// undone without them come first.
var faults = []fault{
	{
		name: "cut-one-way", p99: 1000, max: 1400, undo: dropNothing,
		happen: dropping("type filter hook prerouting priority -400; ip saddr { REMOTE } drop;"),
	},
	{
		name: "cut-both-ways", p99: 1000, max: 1400,
		happen: strikes(watched, pathTo("cut", func(*scene) string { return "cluster2" })),
		undo:   pathTo("heal", func(*scene) string { return "cluster2" }),
	},
	{
		name: "cut-from-worker", p99: 1000, max: 1400,
		happen: strikes(watched, pathTo("cut", func(s *scene) string { return s.from.node })),
		undo:   pathTo("heal", func(s *scene) string { return s.from.node }),
	},
	{
		name: "forward-drops", p99: 1000, max: 1400, undo: dropNothing,
		happen: dropping("type filter hook forward priority 300; drop;"),
	},
	{
		name: "large-packets-dropped", p99: 1000, max: 1400, size: 1200, before: forgetPathMTUs, undo: dropNothing,
		happen: dropping("type filter hook prerouting priority -400; ip saddr { REMOTE } meta length > 1000 drop;"),
	},
	{
		name:    "killed-agent",
		p99:     1000,
		max:     1400,
		happen:  strikes(watchedAgent, killAgents),
		undo:    renewAgents,
		undoAPI: true,
	},
	{name: "killed-node", p99: 300, max: 1000, happen: strikes(watched, killNode), undo: reviveNode, undoAPI: true},
	// to undo it before another
	{
		name:     "killed-far-node",
		far:      true,
		p99:      300,
		max:      1000,
		happen:   strikes(watched, killNode),
		undo:     reviveNode,
		needsAPI: true,
	},
	{
		name:     "drained",
		p99:      300,
		max:      1000,
		happen:   strikes(watched, gatewayCommand("drain")),
		undo:     gatewayCommand("undrain"),
		needsAPI: true,
	},
	{
		name: "returned", p99: 300, max: 1000, needsAPI: true,
		before: func(t *testing.T, s *scene, victim string) {
			killNode(t, s, victim)
			removeNode(t, victim)
			time.Sleep(2 * time.Second)
		},
		concerns: func(*scene, string) []string { return nil }, // it is down, and carries none
		happen: func(t *testing.T, s *scene, victim string) int {
			return s.moved(t, "", func() {
				reviveNode(t, s, victim)
				time.Sleep(time.Second)
			})
		},
	},
	{
		name: "each-in-turn", p99: 300, max: 1000, needsAPI: true, happen: inTurn,
		concerns: func(s *scene, _ string) []string { return s.gateways },
		undo:     func(t *testing.T, s *scene, victim string) { reviveNode(t, s, s.after(victim, len(s.gateways)-1)) },
	},
}

// moved does something and returns how many flows have then changed their gateway, except those of
// the one that fails meanwhile, if any.
func (s *scene) moved(t *testing.T, failing string, do func()) (n int) {
	t.Helper()
	before := gatewaysOf(t, s.from)
	if s.first == nil {
		s.first = before
	}
	do()
	s.now = gatewaysOf(t, s.from)
	for f, mark := range before {
		if now, ok := s.now[f]; ok && now != mark && (failing == "" || mark != s.marks[failing]) {
			t.Logf("moved without need: %+v, from gateway mark %#x to %#x", f, mark, now)
			n++
		}
	}
	return n
}

// suffer runs a fault once, and does not undo it.
func (s *scene) suffer(t *testing.T, f fault, victim string) (run measure.FailoverRun) {
	t.Helper()
	if f.before != nil {
		f.before(t, s, victim)
		s.clock.lap("before")
	}
	drops := dropped(t, s.inside, s.far)
	all := startFlows(t, s.inside, f.size, s.targets...)
	up := time.Now()
	time.Sleep(500 * time.Millisecond)
	s.clock.lap("start")
	s.first = nil
	s.struck = [2]time.Time{}
	concerned := s.concerned(t, f, victim)
	run.Moved = f.happen(t, s, victim)
	e := all.stop(t)
	run.Dropped = dropped(t, s.inside, s.far) - drops
	run.Control = e.Control.LongestGapMs
	s.clock.lap("end")
	for _, u := range e.UDP {
		require.Empty(t, u.Err)
		run.Gap, run.Packets = max(run.Gap, u.LongestGapMs), run.Packets+u.Lost
		if !concerned[u.Port] {
			run.Others, run.OthersPackets = run.Others+1, run.OthersPackets+u.Lost
		}
		if f := (flow{"udp", u.Target, u.Port}); u.Lost > 0 {
			t.Logf(
				"datagrams from port %d to %s: %d lost, from %d to %d ms, gap from %d ms (concerned: %v; first through the failed gateway: %v, now: %v); the fault began from %d to %d ms",
				u.Port, u.Target, u.Lost, u.LostFromMs, u.LostToMs, u.GapFromMs, concerned[u.Port],
				s.first[f] == s.marks[victim], s.now[f] == s.marks[victim], s.struck[0].Sub(up).Milliseconds(),
				s.struck[1].Sub(up).Milliseconds())
		}
	}
	for _, c := range e.TCP {
		f := flow{"tcp", c.Target, c.Port}
		switch pod := strings.HasPrefix(c.Target, s.to.ip); {
		case pod:
			if run.Connections++; c.Err != "" {
				run.Lost++
				t.Logf("connection %d (idle: %v, first through the failed gateway: %v, now: %v): %s", c.Port, c.Idle,
					s.first[f] == s.marks[victim], s.now[f] == s.marks[victim], c.Err)
			}
		case strings.Contains(c.Err, os.ErrDeadlineExceeded.Error()):
			run.Silent++
			t.Logf(
				"connection %d to the Service does not end (idle: %v, first through the failed gateway: %v, now: %v): %s",
				c.Port, c.Idle, s.first[f] == s.marks[victim], s.now[f] == s.marks[victim], c.Err)
		}
	}
	return run
}

// undo undoes a fault, and waits until nothing of it is left.
func (s *scene) undo(t *testing.T, f fault, victim string) {
	t.Helper()
	if f.undoAPI {
		s.apiServers(t, true)
	}
	if f.undo != nil {
		f.undo(t, s, victim)
		s.clock.lap("undo")
	}
	s.settled(t)
	s.clock.lap("settle")
}
