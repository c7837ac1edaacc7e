//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// scene is where faults happen: cluster1 and cluster2 with several gateways and a worker each, and
// flows between the workers.
type scene struct {
	gateways  []string // the gateways of cluster1
	theirs    []string // the gateways of cluster2
	remote    []string // the addresses of the gateways of cluster2
	from, to  pod
	inside    container // of from
	far       container // of to
	targets   []string  // of the flows: to, and its Service
	marks     map[string]int
	usual     map[string]string // the groups of each node while nothing is wrong
	noAPI     bool              // the API servers are down
	suffering bool              // a fault has begun, and was not undone yet
	clock     clock             // of the run

	struck     [2]time.Time // when the last fault began, at the earliest and at the latest
	first, now map[flow]int // the mark of the gateway of each flow: before the fault, and after what has happened last
}

// leftover returns an error if something of a fault is left in the lab, where other faults would
// then not be measured alone.
func (s *scene) leftover() error {
	switch {
	case s == nil: // none has happened
		return nil
	case s.suffering:
		return errors.New("a fault before was not undone")
	case s.noAPI:
		return errors.New("the API servers do not run: they were killed for a fault before")
	}
	return nil
}

// favored is how many times the usual part of the processors the nodes get that carry flows: flows
// wait for what fails, and not for the processors that all nodes share.
const favored = 4

func favor(t *testing.T, times int, nodes ...string) {
	t.Helper()
	must(t, append([]string{"lab", "favor", "--times", fmt.Sprint(times)}, nodes...)...)
}

// clock tells how long each part of a run took.
type clock struct {
	began, last time.Time
	laps        []string
}

func (c *clock) start() { *c = clock{began: time.Now(), last: time.Now()} }

// lap ends a part.
func (c *clock) lap(part string) {
	c.laps = append(c.laps, fmt.Sprintf("%s %.1f", part, time.Since(c.last).Seconds()))
	c.last = time.Now()
}

func (c *clock) String() string {
	return fmt.Sprintf("%.1f s (%s)", time.Since(c.began).Seconds(), strings.Join(c.laps, ", "))
}

// apiServers starts the API servers of both clusters, of which one is the broker's, or kills them,
// once all agents have reported that their cables work: an agent that has just started knows of the
// others what their reports say.
func (s *scene) apiServers(t *testing.T, run bool) {
	t.Helper()
	if s.noAPI != run {
		return
	}
	if !run {
		allConnected(t)
		s.noAPI = true // also if only one of them is killed
	}
	verb := map[bool]string{true: "start", false: "kill"}[run]
	for name, out := range together(clusters[:2], func(c string) (string, error) { return sh("lab", verb, c+"-api") }) {
		require.NoError(t, out.err, "%s the API server of %s: %s", verb, name, out.text)
	}
	s.noAPI = !run
	s.clock.lap(verb + " API servers")
}

// held prints the groups of next hops of a node, and what its connections choose from.
const held = `{ ip nexthop | sed 's/ unbalanced_time .*//' | sort; nft list table ip submariner-route-return 2>/dev/null | grep numgen || true; }`

// settled waits until all nodes use the gateways that they use while nothing is wrong. A node that
// has booted on a busy machine may take minutes: before its kubelet starts a container again that
// has failed, it waits 10 s, then 20 s, 40 s, and so on.
func (s *scene) settled(t *testing.T) {
	t.Helper()
	const within = 90 * time.Second
	took := eventually(t, within, func() error {
		s.await(slack * within)
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

// await waits until each node has had its usual groups, at any time, or until the time is over. The
// loop runs in the node: entering a node takes more of the processors than looking at its groups.
// The caller looks again at all nodes: the groups of one may have changed since.
func (s *scene) await(within time.Duration) {
	const script = `until [ "$(` + held + ` 2>&1)" = "$1" ]; do sleep 0.2; done`
	together(everyNode(), func(n string) (string, error) {
		return sh("lab", "exec", n, "--", "timeout", fmt.Sprint(within.Seconds()), "sh", "-c", script, "sh",
			strings.TrimRight(s.usual[n], "\n"))
	})
}

// asUsual reports whether all nodes use the gateways that they use while nothing is wrong.
func (s *scene) asUsual(t *testing.T) bool {
	t.Helper()
	return maps.Equal(s.groups(t), s.usual)
}

// groups returns the groups of next hops of each node, and what its connections choose from.
func (s *scene) groups(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for node, printed := range together(everyNode(), func(n string) (string, error) {
		return sh("lab", "exec", n, "--", "sh", "-c", held)
	}) {
		require.NoError(t, printed.err, "%s: %s", node, printed.text)
		out[node] = printed.text
	}
	return out
}

func everyNode() []string { return slices.Concat(nodes(clusters[0]), nodes(clusters[1])) }

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
