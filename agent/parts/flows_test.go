package parts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/role"
	"subctl/cable"
	"subctl/dataplane"
)

// flowKernel is a kernel with a connection to each network.
type flowKernel struct {
	dataplane.Cabler
	took    time.Duration         // to read them
	err     error                 // of a reading
	reads   []time.Time           // when readings began
	queries []dataplane.FlowQuery // of the readings

	deaf      error // keeps it from following new connections
	following []context.Context
	ended     chan error // of the last of them
	in        func(netip.Addr) bool
}

func (k *flowKernel) Flows(q dataplane.FlowQuery) (dataplane.Flows, error) {
	k.reads, k.queries = append(k.reads, time.Now()), append(k.queries, q)
	time.Sleep(k.took)
	return dataplane.Flows{Count: len(q.Networks)}, k.err
}

// flowTest is a gateway that counts connections while the time of a synctest bubble passes.
type flowTest struct {
	*flows
	kernel    *flowKernel
	start     time.Time
	triggered []time.Time
}

// whileCounting calls do while the connections to networks are counted.
func whileCounting(t *testing.T, q dataplane.FlowQuery, took time.Duration, do func(*testing.T, *flowTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &flowTest{kernel: &flowKernel{took: took}, start: time.Now()}
		f.flows = newFlows(Options{
			Log: slog.New(slog.DiscardHandler), Cabler: func() dataplane.Cabler { return f.kernel },
			Trigger: func() { f.triggered = append(f.triggered, time.Now()) },
		})
		f.setQuery(q, false)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.Start(ctx) }()
		defer func() {
			stop()
			require.NoError(t, <-ended)
		}()
		do(t, f)
	})
}

// observe returns what a snapshot has.
func (f *flowTest) observe(standing role.Standing, health role.Healths) role.Flows {
	s := role.Snapshot{Now: time.Now(), Standing: standing, Health: health}
	_ = f.Observe(&s) // never fails
	synctest.Wait()
	return s.Flows
}

// after lets time pass until a time after the start.
func (f *flowTest) after(d time.Duration) {
	time.Sleep(time.Until(f.start.Add(d)))
	synctest.Wait()
}

// times returns the times of readings, or of triggers, after the start.
func (f *flowTest) times(all []time.Time) (out []time.Duration) {
	for _, at := range all {
		out = append(out, at.Sub(f.start))
	}
	return out
}

func networks(text ...string) (out []netip.Prefix) {
	for _, n := range text {
		out = append(out, netip.MustParsePrefix(n))
	}
	return out
}

var activeGateway = role.Standing{Active: true}

const second = time.Second

// The connections of an active gateway are counted now and then, and more often while it is
// draining. Then the loop runs for each count.
func TestFlowCount(t *testing.T) {
	query := dataplane.FlowQuery{Networks: networks("10.2.0.0/16")}
	whileCounting(t, query, 0, func(t *testing.T, f *flowTest) {
		f.after(time.Minute)
		require.Empty(t, f.kernel.reads, "nobody knows yet whether it is active")
		f.start = time.Now()
		require.Equal(t, role.Flows{}, f.observe(activeGateway, nil), "not counted yet")
		require.Equal(t, []time.Duration{0}, f.times(f.triggered), "the loop need not wait for the next heartbeat")
		require.Equal(t, role.Flows{Known: true, Count: 1, At: f.start}, f.observe(activeGateway, nil))
		f.after(31 * second)
		require.Equal(t, []time.Duration{0, flowsEvery, 2 * flowsEvery}, f.times(f.kernel.reads))
		require.Len(t, f.triggered, 1)
		f.setQuery(query, true)
		f.after(39 * second)
		require.Equal(t, []time.Duration{34 * second, 38 * second}, f.times(f.kernel.reads)[3:])
		require.Equal(t, []time.Duration{34 * second, 38 * second}, f.times(f.triggered)[1:])
		require.Equal(t, f.start.Add(38*second), f.observe(activeGateway, nil).At)
	})
	f := newFlows(Options{})
	f.took = 100 * time.Millisecond
	require.Equal(t, flowsShare*f.took, f.pause(), "a large table is read less often")
	f.took = 10 * second
	require.Equal(t, flowsAtLeast, f.pause())
}

// The loop does not wait while the kernel lists connections.
func TestFlowsBesideTheLoop(t *testing.T) {
	whileCounting(
		t,
		dataplane.FlowQuery{Networks: networks("10.2.0.0/16")},
		10*second,
		func(t *testing.T, f *flowTest) {
			f.observe(activeGateway, nil)
			f.after(second)
			require.False(t, f.observe(activeGateway, nil).Known)
			f.Refresh(&role.Snapshot{})
			f.setQuery(dataplane.FlowQuery{Networks: networks("10.2.0.0/16")}, false)
			require.Equal(t, second, time.Since(f.start))
			f.after(11 * second)
			require.True(t, f.observe(activeGateway, nil).Known)
		},
	)
}

// A member that changes its networks more often than connections can be read does not keep a
// gateway from being drained.
func TestHostileNetworksDuringADrain(t *testing.T) {
	query := dataplane.FlowQuery{Networks: networks("10.2.0.0/16", "10.3.0.0/16")}
	whileCounting(t, query, 2*second, func(t *testing.T, f *flowTest) {
		f.observe(activeGateway, nil)
		f.setQuery(query, true)
		for i := range 200 {
			f.after(time.Duration(i) * second)
			f.setQuery(dataplane.FlowQuery{Networks: networks("10.2.0.0/16", fmt.Sprintf("10.4.%d.0/24", i))}, true)
			if i < 100 {
				continue
			}
			flows := f.observe(activeGateway, nil)
			require.True(t, flows.Known)
			require.Less(t, time.Since(flows.At), 2*drainingShare*f.took)
			require.Equal(t, 3, flows.Count)
		}
		last := f.kernel.queries[len(f.kernel.queries)-1].Networks
		require.Equal(t, query.Networks, last[:2], "it may have connections from before")
		f.setQuery(query, false)
		f.setQuery(dataplane.FlowQuery{Networks: networks("10.2.0.0/16", "10.5.0.0/16")}, false)
		require.False(t, f.observe(activeGateway, nil).Known, "it is in service")
	})
}

// A result that may lack connections does not count: neither one that there was, nor the one of a
// reading that has begun before.
func TestFlowsDropped(t *testing.T) {
	query := dataplane.FlowQuery{Networks: networks("10.2.0.0/16"), Except: networks("10.1.1.0/24")}
	for name, test := range map[string]struct {
		next dataplane.FlowQuery
		keep bool
	}{
		"the same": {query, true},
		"a cluster joins": {
			dataplane.FlowQuery{Networks: networks("10.2.0.0/16", "10.3.0.0/16"), Except: query.Except},
			false,
		},
		"the last cluster leaves": {dataplane.FlowQuery{Except: query.Except}, false},
		"the node has other pods": {
			dataplane.FlowQuery{Networks: query.Networks, Except: networks("10.1.2.0/24")},
			false,
		},
		"there is another global subnet": {
			dataplane.FlowQuery{Networks: query.Networks, Except: query.Except, Sources: networks("242.1.0.0/16")},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			whileCounting(t, query, 40*time.Millisecond, func(t *testing.T, f *flowTest) {
				f.observe(activeGateway, nil)
				f.after(10 * time.Millisecond)
				f.setQuery(test.next, false)
				f.after(100 * time.Millisecond)
				require.Equal(t, test.keep, f.observe(activeGateway, nil).Known, "it was being counted")
				f.after(5 * second)
				require.Equal(t, len(test.next.Networks) > 0, f.observe(activeGateway, nil).Known,
					"counted again, soon")
				require.LessOrEqual(t, len(f.kernel.reads), 2)
				f.setQuery(query, false)
				f.after(10 * second)
				require.True(t, f.observe(activeGateway, nil).Known)
				f.setQuery(test.next, false)
				require.Equal(t, test.keep, f.observe(activeGateway, nil).Known, "it was counted")
			})
		})
	}
	for name, passive := range map[string]role.Standing{
		"passive": {},
		"standby": {Active: true, Drain: cable.Standby},
	} {
		whileCounting(t, query, 40*time.Millisecond, func(t *testing.T, f *flowTest) {
			f.observe(activeGateway, nil)
			f.after(10 * time.Millisecond)
			f.observe(passive, nil)
			f.after(time.Minute)
			require.False(t, f.observe(passive, nil).Known, name)
			require.Len(t, f.kernel.reads, 1, name)
			require.False(t, f.observe(activeGateway, nil).Known, "what was counted before it was %s", name)
			f.after(time.Minute + second)
			require.True(t, f.observe(activeGateway, nil).Known, name)
		})
	}
}

// What cannot be counted is not known, and is tried again no sooner than if it could.
func TestFlowsUnknown(t *testing.T) {
	whileCounting(t, dataplane.FlowQuery{Networks: networks("10.2.0.0/16")}, 0, func(t *testing.T, f *flowTest) {
		f.kernel.err = errors.New("no buffer space available")
		for at := range 16 {
			f.after(time.Duration(at) * second)
			require.Equal(t, role.Flows{}, f.observe(activeGateway, nil))
		}
		require.Equal(t, []time.Duration{0, flowsEvery}, f.times(f.kernel.reads))
		require.Empty(t, f.triggered)
	})
}

// A gateway tolerates connections that come back whenever it counts connections, and a second after
// something has failed or has answered again: also if that took less than a second. A cluster's
// only gateway does not.
func TestFlowsComeBack(t *testing.T) {
	several := dataplane.FlowQuery{Networks: networks("10.2.0.0/16"), Tolerate: true}
	const took = 10 * time.Millisecond
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for name, test := range map[string]struct {
		query   dataplane.FlowQuery
		changes [][2]time.Duration // when the target fails, and when it answers again
		want    []time.Duration    // when connections are read
	}{
		"nothing fails": {several, nil, []time.Duration{0, 15 * second}},
		"the only gateway": {
			dataplane.FlowQuery{Networks: several.Networks},
			[][2]time.Duration{{ms(3000), ms(9000)}},
			[]time.Duration{0, 15 * second},
		},
		"down and up": {
			several,
			[][2]time.Duration{{ms(3000), ms(9000)}},
			[]time.Duration{0, 4 * second, 10 * second},
		},
		"down for 0.6 s": {
			several,
			[][2]time.Duration{{ms(3000), ms(3600)}},
			[]time.Duration{0, 4 * second, ms(4600)},
		},
		// 25 times what a reading takes
		"down for 0.1 s": {
			several,
			[][2]time.Duration{{ms(3000), ms(3100)}},
			[]time.Duration{0, 4 * second, ms(4250)},
		},
		"just before a read": {
			several,
			[][2]time.Duration{{ms(14500), ms(20000)}},
			[]time.Duration{0, 15 * second, ms(15500)},
		},
		"again and again": {
			several,
			[][2]time.Duration{{ms(3000), ms(3400)}, {ms(3800), ms(4200)}, {ms(4600), ms(5000)}, {ms(5400), ms(5800)}},
			[]time.Duration{0, 4 * second, ms(4800), ms(5600), ms(6400), ms(6800)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			whileCounting(t, test.query, took, func(t *testing.T, f *flowTest) {
				var h role.Health
				health := func() role.Healths { return role.Healths{"other": {}, "west": h} }
				f.observe(activeGateway, health())
				for _, c := range test.changes {
					f.after(c[0])
					h.Since = time.Now()
					f.Refresh(&role.Snapshot{Health: health()}) // the loop waits for something else
					f.after(c[1])
					h.Back = time.Now()
					f.observe(activeGateway, health())
				}
				f.after(16 * second)
				got := f.times(f.kernel.reads)
				require.GreaterOrEqual(t, len(got), len(test.want))
				require.Equal(t, test.want, got[:len(test.want)])
				for _, q := range f.kernel.queries {
					require.Equal(t, test.query, q)
				}
			})
		})
	}
}

// A target that fails all the time does not put readings off, and does not make them take more than
// their share.
func TestFlowsOfAFlappingTarget(t *testing.T) {
	whileCounting(
		t,
		dataplane.FlowQuery{Networks: networks("10.2.0.0/16"), Tolerate: true},
		100*time.Millisecond,
		func(t *testing.T, f *flowTest) {
			for at := time.Duration(0); at <= 15*second; at += 300 * time.Millisecond {
				f.after(at)
				f.observe(activeGateway, role.Healths{"west": {Back: time.Now()}})
			}
			rest := drainingShare * 100 * time.Millisecond
			require.Equal(t, []time.Duration{0, rest, 2 * rest, 3 * rest, 4 * rest, 5 * rest, 6 * rest},
				f.times(f.kernel.reads))
		},
	)
}
