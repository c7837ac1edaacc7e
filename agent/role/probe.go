package role

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
)

// Probes are the addresses to ping.
type Probes struct {
	Interval time.Duration // between pings of one target
	// Retry, if not zero, is the time to the next ping of a target that has not answered; it
	// doubles with every lost ping, up to Interval.
	Retry   time.Duration
	MaxLost int // pings in a row that may stay unanswered
	Targets map[string]Target
	Echo    int // the UDP port to which this agent sends echoes
	// Known has what the agent's predecessor had found of targets that are Fast and were down, by
	// name, while this agent's own probes have no result: such a target is up again only after
	// FastBack answers to the probes that had found it down.
	Known Healths
}

// Pause returns the time from a ping to the next. connected reports whether the target answered
// before, and lost is the number of pings in a row that it has not answered. With a Retry, it
// doubles up to a quarter of the interval: for so long a path that works again is still reported as
// one that does not.
func (p Probes) Pause(connected bool, lost int) time.Duration {
	if p.Retry == 0 || connected && lost == 0 {
		return p.Interval
	}
	pause := p.Retry
	longest := p.Interval / 4
	for range lost {
		if pause *= 2; pause >= longest {
			return longest
		}
	}
	return min(pause, longest)
}

// FastEvery returns the time between the pings of each target that is Fast.
func (p Probes) FastEvery() time.Duration {
	n := 0
	for _, t := range p.Targets {
		if t.Fast {
			n++
		}
	}
	return max(FastInterval, time.Duration(n)*FastEach)
}

// How a target that is Fast is pinged: every FastInterval, or up to a tenth earlier, and every
// FastRetry while answers are overdue, until FastLost pings have no answer, and once more. It is
// down when FastLost pings in a row were not answered in time: 0.1 to 0.2 s after the last answer,
// where answers take a few milliseconds. A ping is answered in time if the answer takes no longer
// than the slowest recent one and FastTimeout. It is overdue FastDoubt after the slowest recent one
// would have come, as to ask again costs no more than a ping.
//
// So a target is down FastDoubt + (FastLost-2)·FastRetry + FastTimeout = 95 ms after the first of
// these pings was sent, and twice the time of the slowest recent answer: packets may be held up for
// so long. They may be lost for 82 ms, until the last ping is sent that is answered before that,
// and once that time.
//
// Where 2 % of all packets are lost at random in either direction, a ping is lost with a
// probability of 1 - 0.98² = 0.04, and seven in a row with 0.04⁷ = 1.5e-10. Ten pings a second thus
// find a target down by chance once in 20 years.
//
// From time to time, every FullInterval, an echo has the size of the MTU. See Echo.
//
// A target that was down is up after FastBack answers in a row, and is pinged every FastInterval
// until then, but only every FastIdle after FastTired lost pings. If it is down again before it was
// Steady, it takes twice as many answers, and each time that this happens, up to FastFlaps times: 4
// s.
//
// FastEach bounds the cost of many targets: each is pinged less often, so that no more than one in
// FastEach is pinged on average, large echoes not counted. While answers are overdue, each is
// pinged FastRetries times as often, or every FastRetry if that is longer: if 1,000 fail at once,
// every FastRetryMany.
const (
	FastInterval  = 100 * time.Millisecond
	FastEach      = time.Millisecond
	FastRetry     = 12 * time.Millisecond
	FastRetryMany = 20 * time.Millisecond
	FastRetries   = 50
	FastDoubt     = 10 * time.Millisecond
	FastTimeout   = 25 * time.Millisecond
	FullInterval  = 500 * time.Millisecond
	FastLost      = 7
	FastBack      = 5
	FastFlaps     = 3
	FastTired     = 100
	FastIdle      = time.Second
)

// Target is an address to ping and the address to ping it from.
type Target struct {
	IP, From netip.Addr
	// Who is the name of a target that is Fast in messages, such as "gateway gw-1 of cluster west";
	// empty if it is its address. It is "it" where messages are about a node of this cluster, which
	// Healths.unreachable names.
	Who string
	// Eager has it pinged more often than Interval: a change of cables waits for the answer.
	Eager bool
	// Fast has it pinged every FastInterval: if it is down, packets take another way at once.
	Fast bool
	// Echo describes how echoes reach the target; the zero Echo if it cannot forward them back.
	Echo Echo
	// First is the time of the first ping; the zero time: at once.
	First time.Time
}

// Echo describes how echoes reach a target that is Fast. Echoes are datagrams from and to the
// node's own address, which the other node's kernel forwards back, like packets of pods. So they
// reveal a gateway whose kernel answers pings and forwards nothing (RFC 5880, section 6.4). They
// count once one has come back.
type Echo struct {
	Device string
	MAC    string // of the target on the device
	MTU    int    // the size of the largest packets, in bytes
}

// Health is the result of pinging one target.
type Health struct {
	Status  submarinerv1.ConnectionStatus
	Message string
	// Of a target that is Fast, when it was last found down, and by what: ByPing, ByEcho or
	// ByLargeEcho. If it is not down any more, Back is later.
	Since time.Time
	By    string
	// Back is when a target that is Fast last answered again after it was down; the zero time if it
	// was not.
	Back time.Time
	// Flaps specifies that it had answered again for less than Steady before that.
	Flaps bool
	RTT   RTT
}

// What finds that a target that is Fast is down.
const (
	ByPing      = "ping"
	ByEcho      = "echo"
	ByLargeEcho = "large echo"
)

// Steady is the time for which a target that is Fast has answered again before its next failure
// counts as a single one. It is short compared with the time between two failures of a node, and
// longer than the 2 s for which connections wait for a gateway.
const Steady = 30 * time.Second

// Healths are the results of probes, by name of the probe.
type Healths map[string]Health

// ProbeName returns the name of the probe of one of a pair's cables.
func ProbeName(peer, device string) string { return peer + " over " + device }

// GatewayProbe returns the name of the probe by which a node observes a gateway of its own cluster.
func GatewayProbe(g cable.Node) string { return gatewayProbes + g.Name }

// WorkerProbe returns the name of the probe by which a gateway observes a node of its cluster that
// is no gateway.
func WorkerProbe(n cable.Node) string { return workerProbes + n.Name }

// SiblingProbe returns the name of the probe by which the gateway agent of a node observes another
// gateway of its cluster, for its detours. It is no news for people: the route agents of both nodes
// observe the same.
func SiblingProbe(g cable.Node) string { return "sibling/" + g.Name }

// The names of probes of nodes of this cluster about which route agents report begin so.
const gatewayProbes, workerProbes = "gateway/", "worker/"

// Unreachable describes the nodes of this cluster to which packets are lost: what has found that,
// and since when.
func (h Healths) Unreachable() (texts []string) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if got := h[name]; got.Status == submarinerv1.ConnectionError &&
			(strings.HasPrefix(name, gatewayProbes) || strings.HasPrefix(name, workerProbes)) {
			kind, node, _ := strings.Cut(name, "/")
			texts = append(
				texts,
				fmt.Sprintf("%s %q, found by %s at %s: %s", kind, node, got.By, got.Since.UTC().Format(time.RFC3339),
					got.Message),
			)
		}
	}
	return texts
}

// Recalling returns all results, and those of them that are recalled: where a probe has no result
// of its own yet, the one from before counts.
func (h Healths) Recalling(before Healths) (all, recalled Healths) {
	if len(before) == 0 {
		return h, nil
	}
	all = maps.Clone(before)
	recalled = Healths{}
	maps.Copy(all, h)
	for name, was := range before {
		if s := h[name].Status; s != submarinerv1.Connected && s != submarinerv1.ConnectionError {
			all[name] = was
			recalled[name] = was
		}
	}
	return all, recalled
}

// Proven reports whether a cable answers pings.
func (h Healths) Proven(c cable.Cable) bool {
	return h[ProbeName(c.Name, c.Device())].Status == submarinerv1.Connected
}

// Down reports whether a cable is not to be used while there is another way: its other end does not
// answer.
func (h Healths) Down(c cable.Cable) bool {
	return h[ProbeName(c.Name, c.Device())].Status == submarinerv1.ConnectionError
}

// Silent reports whether the cable c, which a pair uses, must carry nothing, because it has stopped
// answering: neither the other gateway nor the other end of the cable itself answers pings. The
// other end may have dropped the cable, and then nobody receives what is sent, or somebody else
// does. An encrypted cable is never silent: it carries nothing that others can read, and nothing at
// all without keys.
func (h Healths) Silent(c cable.Cable, was Using) bool {
	itself := h[ProbeName(c.Name, c.Device())].Status
	switch {
	case c.Driver.Properties().Encrypts || was.Device != c.Device():
		return false
	case was.Silent:
		return itself != submarinerv1.Connected
	}
	return h.Fails(c) && itself == submarinerv1.ConnectionError
}

// Fails reports whether the gateway to which a cable leads does not answer pings any more.
func (h Healths) Fails(c cable.Cable) bool {
	return h[c.Name].Status == submarinerv1.ConnectionError
}

// StateOf returns what the kernel says of a cable; false if its driver keeps no state.
func (s Snapshot) StateOf(l cable.Link) (dataplane.CableState, bool) {
	for _, c := range s.Cables {
		if c.Device == l.StateDevice && c.Peer == l.State {
			return c, true
		}
	}
	return dataplane.CableState{}, l.State != ""
}

// RTT sums up round trip times. The zero value has seen none.
type RTT struct {
	n                    int
	last, min, max       time.Duration
	mean, squaredFromAvg float64 // nanoseconds; Welford's algorithm
}

// Add adds a round trip time.
func (r *RTT) Add(d time.Duration) {
	r.n++
	r.last = d
	if r.n == 1 || d < r.min {
		r.min = d
	}
	r.max = max(r.max, d)
	delta := float64(d) - r.mean
	r.mean += delta / float64(r.n)
	r.squaredFromAvg += delta * (float64(d) - r.mean)
}

// Max returns the longest round trip time; 0 if there is none.
func (r RTT) Max() time.Duration { return r.max }

// Mean returns the average in seconds; false if there is none.
func (r RTT) Mean() (seconds float64, ok bool) { return r.mean / float64(time.Second), r.n > 0 }

// Reported returns the RTT as objects hold it; nil if there is none.
func (r RTT) Reported() *submarinerv1.LatencyRTT {
	if r.n == 0 {
		return nil
	}
	return &submarinerv1.LatencyRTT{
		Last: r.last.String(), Min: r.min.String(), Max: r.max.String(),
		Average: time.Duration(r.mean).String(),
		StdDev:  time.Duration(math.Sqrt(r.squaredFromAvg / float64(r.n))).String(),
	}
}
