//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/measure"
)

// scene is where faults happen: cluster1 and cluster2 with several gateways and a worker each, and flows between the workers.
type scene struct {
	gateways  []string // of cluster1: those that fail
	remote    []string // the addresses of the gateways of cluster2
	from, to  pod
	inside    container // of from
	far       container // of to
	targets   []string  // of the flows: to, and its Service
	marks     map[string]int
	usual     map[string]string // the groups of each node while nothing is wrong
	noAPI     bool              // the API servers are down
	suffering bool              // a fault has begun, and was not undone yet
}

// A fault happens to one gateway of cluster1, the victim, while packets flow. What a step does may fail the test.
type fault struct {
	name     string
	before   func(t *testing.T, s *scene, victim string)             // before the flows begin; may be nil
	happen   func(t *testing.T, s *scene, victim string) (moved int) // returns how many flows moved needlessly
	undo     func(t *testing.T, s *scene, victim string)             // after the flows have ended; may be nil
	needsAPI bool                                                    // it cannot happen without API servers
	undoAPI  bool                                                    // it can happen, but not be undone, without them
	p99, max float64                                                 // limits of the gap, in ms
	size     int                                                     // of the datagrams, in bytes
}

// How long flows are watched after a fault: three times as long as any gap may be, and until an agent that was killed is there again. A
// connection that survives does so also if it is watched for less.
var watched, watchedAgent = lasts(3*time.Second, time.Second), lasts(5*time.Second, 2*time.Second)

// lasts returns how long something lasts where it is measured, or where it is only seen to work.
func lasts(measured, seen time.Duration) time.Duration {
	if failoverRuns > 0 {
		return measured
	}
	return seen
}

// strikes returns what happens if a fault begins at once.
func strikes(watched time.Duration, begin func(t *testing.T, s *scene, victim string)) func(*testing.T, *scene, string) int {
	return func(t *testing.T, s *scene, victim string) int {
		return s.moved(t, victim, func() {
			begin(t, s, victim)
			time.Sleep(watched)
		})
	}
}

// The faults' drops are in a table of their own, so that agents cannot repair them.
const faultTable = "table inet fault"

func dropping(chain string) func(*testing.T, *scene, string) int {
	return strikes(watched, func(t *testing.T, s *scene, victim string) {
		on(t, victim, fmt.Sprintf("nft '%s { chain c { %s }; }'", faultTable, strings.ReplaceAll(chain, "REMOTE", strings.Join(s.remote, ", "))))
	})
}

func dropNothing(t *testing.T, _ *scene, victim string) { on(t, victim, "nft delete "+faultTable) }

// pathTo returns a change of the path between the victim and another: cut or heal.
func pathTo(verb string, other func(*scene) string) func(*testing.T, *scene, string) {
	return func(t *testing.T, s *scene, victim string) { must(t, "lab", verb, victim, other(s)) }
}

func killNode(t *testing.T, _ *scene, victim string) {
	must(t, "lab", "kill", victim)
	must(t, "lab", "cut", victim)
}

func reviveNode(t *testing.T, s *scene, victim string) {
	must(t, "lab", "heal", victim)
	must(t, "lab", "start", victim)
	s.settled(t)
}

func killAgents(t *testing.T, _ *scene, victim string) { on(t, victim, "pkill -9 -x subctl") }

// renewAgents waits for the agents of a node. A new kubelet does not make them wait for having failed often.
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

// faults are all faults. Where one after another happens without API servers, those that can be undone without them come first.
var faults = []fault{
	{
		name: "cut-one-way", p99: 1000, max: 2000, undo: dropNothing,
		happen: dropping("type filter hook prerouting priority -400; ip saddr { REMOTE } drop;"),
	},
	{
		name: "cut-both-ways", p99: 1000, max: 2000,
		happen: strikes(watched, pathTo("cut", func(*scene) string { return "cluster2" })),
		undo:   pathTo("heal", func(*scene) string { return "cluster2" }),
	},
	{
		name: "cut-from-worker", p99: 1000, max: 2000,
		happen: strikes(watched, pathTo("cut", func(s *scene) string { return s.from.node })),
		undo:   pathTo("heal", func(s *scene) string { return s.from.node }),
	},
	{
		name: "forward-drops", p99: 1000, max: 2000, undo: dropNothing,
		happen: dropping("type filter hook forward priority 300; drop;"),
	},
	{
		name: "large-packets-dropped", p99: 1000, max: 2000, size: 1200, undo: dropNothing,
		happen: dropping("type filter hook prerouting priority -400; ip saddr { REMOTE } meta length > 1000 drop;"),
	},
	{name: "killed-agent", p99: 300, max: 1000, happen: strikes(watchedAgent, killAgents), undo: renewAgents, undoAPI: true},
	{name: "killed-node", p99: 300, max: 1000, happen: strikes(watched, killNode), undo: reviveNode, undoAPI: true},
	{name: "drained", p99: 300, max: 1000, happen: strikes(watched, gatewayCommand("drain")), undo: gatewayCommand("undrain"), needsAPI: true},
	{
		name: "returned", p99: 300, max: 1000, needsAPI: true,
		before: func(t *testing.T, s *scene, victim string) {
			killNode(t, s, victim)
			time.Sleep(2 * time.Second)
		},
		happen: func(t *testing.T, s *scene, victim string) int {
			return s.moved(t, "", func() {
				reviveNode(t, s, victim)
				time.Sleep(time.Second)
			})
		},
	},
	{
		name: "each-in-turn", p99: 300, max: 1000, needsAPI: true, happen: inTurn,
		undo: func(t *testing.T, s *scene, victim string) { reviveNode(t, s, s.after(victim, len(s.gateways)-1)) },
	},
}

// moved does something and returns how many flows have then changed their gateway, except those of the one that fails meanwhile, if any.
func (s *scene) moved(t *testing.T, failing string, do func()) (n int) {
	t.Helper()
	before := gatewaysOf(t, s.from)
	do()
	after := gatewaysOf(t, s.from)
	for port, mark := range before {
		if now, ok := after[port]; ok && now != mark && (failing == "" || mark != s.marks[failing]) {
			n++
		}
	}
	return n
}

// suffer runs a fault once.
func (s *scene) suffer(t *testing.T, f fault, victim string) (run measure.FailoverRun) {
	t.Helper()
	if f.before != nil {
		f.before(t, s, victim)
	}
	drops := dropped(t, s.inside, s.far)
	all := startFlows(t, s.inside, f.size, s.targets...)
	up := time.Now()
	time.Sleep(500 * time.Millisecond)
	began, struck := gatewaysOf(t, s.from), time.Since(up)
	run.Moved = f.happen(t, s, victim)
	now := gatewaysOf(t, s.from)
	e := all.stop(t)
	run.Dropped, run.Control = dropped(t, s.inside, s.far)-drops, e.Control.LongestGapMs
	for _, u := range e.UDP {
		require.Empty(t, u.Err)
		run.Gap, run.Packets = max(run.Gap, u.LongestGapMs), run.Packets+u.Lost
		if u.Lost > 0 {
			t.Logf("datagrams from port %d to %s: %d lost, from %d to %d ms (first through the failed gateway: %v, now: %v); the fault began after %d ms",
				u.Port, u.Target, u.Lost, u.LostFromMs, u.LostToMs, began[u.Port] == s.marks[victim], now[u.Port] == s.marks[victim], struck.Milliseconds())
		}
	}
	for _, c := range e.TCP {
		if strings.HasPrefix(c.Target, s.to.ip) {
			if run.Connections++; c.Err != "" {
				run.Lost++
				t.Logf("connection %d (idle: %v, first through the failed gateway: %v, now: %v): %s", c.Port, c.Idle, began[c.Port] == s.marks[victim], now[c.Port] == s.marks[victim], c.Err)
			}
		}
	}
	if f.undoAPI {
		s.apiServers(t, true)
	}
	if f.undo != nil {
		f.undo(t, s, victim)
	}
	s.settled(t)
	return run
}

// apiServers starts the API servers of both clusters, of which one is the broker's, or kills them, once all agents have reported that
// their cables work: an agent that has just started knows of the others what their reports say.
func (s *scene) apiServers(t *testing.T, run bool) {
	t.Helper()
	if s.noAPI != run {
		return
	}
	if !run {
		allConnected(t)
	}
	verb := map[bool]string{true: "start", false: "kill"}[run]
	for name, out := range together(clusters[:2], func(c string) (string, error) { return sh("lab", verb, c+"-api") }) {
		require.NoError(t, out.err, "%s the API server of %s: %s", verb, name, out.text)
	}
	s.noAPI = !run
}

// settled waits until all nodes use the gateways that they use while nothing is wrong. A node that has booted on a busy machine may take
// minutes: before its kubelet starts a container again that has failed, it waits 10 s, then 20 s, 40 s, and so on.
func (s *scene) settled(t *testing.T) {
	t.Helper()
	took := eventually(t, 90*time.Second, func() error {
		for node, groups := range s.groups(t) {
			if groups != s.usual[node] {
				return fmt.Errorf("%s has\n%s, not\n%s", node, groups, s.usual[node])
			}
		}
		return nil
	})
	if took > 30*time.Second {
		t.Logf("settled only after %v", took.Round(time.Second))
	}
}

// groups returns the groups of next hops of each node, and what its connections choose from.
func (s *scene) groups(t *testing.T) map[string]string {
	t.Helper()
	const script = `ip nexthop | sed 's/ unbalanced_time .*//' | sort; nft list table ip submariner-route-return 2>/dev/null | grep numgen || true`
	out := map[string]string{}
	for node, held := range together(slices.Concat(nodes(clusters[0]), nodes(clusters[1])), func(n string) (string, error) { return sh("lab", "exec", n, "--", "sh", "-c", script) }) {
		require.NoError(t, held.err, "%s: %s", node, held.text)
		out[node] = held.text
	}
	return out
}

// printed is what a program has printed, and its error.
type printed struct {
	text string
	err  error
}

// together runs something for each name at the same time.
func together(names []string, run func(name string) (string, error)) map[string]printed {
	var mu sync.Mutex
	var all sync.WaitGroup
	out := map[string]printed{}
	for _, name := range names {
		all.Go(func() {
			text, err := run(name)
			mu.Lock()
			defer mu.Unlock()
			out[name] = printed{text, err}
		})
	}
	all.Wait()
	return out
}
