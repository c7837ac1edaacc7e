//go:build linux

package strongswan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A tunnel is tried again at once after an attempt without an answer, and soon after a refusal.
// Refusals, and tunnels that do not last, are never followed by many tries within a short time.
func TestTries(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	type outcome struct{ connecting, up time.Duration } // of a try
	always := func(o outcome) func(time.Duration) outcome { return func(time.Duration) outcome { return o } }
	for name, test := range map[string]struct {
		child string
		try   func(begins time.Duration) outcome
		want  []time.Duration
	}{
		"refused": {
			"first-1",
			always(outcome{}),
			[]time.Duration{0, 500 * ms, 1500 * ms, 3500 * ms, 7500 * ms, 15500 * ms, 25500 * ms, 35500 * ms},
		},
		"refused, slowly": {
			"first-1",
			always(outcome{connecting: 600 * ms}),
			[]time.Duration{0, 1 * s, 2 * s, 4 * s, 8 * s, 16 * s, 26 * s, 36 * s},
		},
		"refused, of the second end": {
			"second-1",
			always(outcome{}),
			[]time.Duration{1500 * ms, 3500 * ms, 6 * s, 9500 * ms, 15 * s, 24500 * ms, 36 * s},
		},
		"no answer": {
			"first-1",
			always(outcome{connecting: 9900 * ms}),
			[]time.Duration{0, 10 * s, 20 * s, 30 * s},
		},
		"no answer, and then refused by an end that begins to work": {"first-1", func(begins time.Duration) outcome {
			switch {
			case begins < 20*s:
				return outcome{connecting: 9900 * ms}
			case begins < 22*s:
				return outcome{}
			}
			return outcome{up: time.Minute}
		}, []time.Duration{0, 10 * s, 20 * s, 20500 * ms, 21500 * ms, 23500 * ms}},
		"does not last": {
			"first-1",
			always(outcome{up: 100 * ms}),
			[]time.Duration{0, 500 * ms, 1500 * ms, 3500 * ms, 7500 * ms, 15500 * ms, 25500 * ms, 35500 * ms},
		},
		"does not last, and is seen": {
			"first-1",
			always(outcome{up: 600 * ms}),
			[]time.Duration{0, 1 * s, 2 * s, 4 * s, 8 * s, 12 * s, 16 * s, 20 * s, 24 * s, 28 * s, 32 * s, 36 * s},
		},
		"begun only by the other end": {"never-1", always(outcome{}), nil},
		"lasts, and is ended": {"first-1", func(begins time.Duration) outcome {
			if begins == 3500*ms {
				return outcome{up: 20 * s}
			}
			return outcome{}
		}, []time.Duration{0, 500 * ms, 1500 * ms, 3500 * ms, 23500 * ms, 24 * s, 25 * s, 27 * s, 31 * s, 39 * s}},
		"lasts, and is ended, with a second end": {
			"second-1",
			always(outcome{up: 10 * s}),
			[]time.Duration{1500 * ms, 13 * s, 24500 * ms, 36 * s},
		},
	} {
		for conn, child := range map[string]string{
			"tunnel":   test.child,
			"remote@1": map[string]string{"first-1": "start:a", "never-1": "add:a"}[test.child],
		} {
			if child == "" {
				continue // a dataplane.IKERemote has no second end
			}
			t.Run(name+"/"+conn, func(t *testing.T) {
				n := &negotiator{waits: map[initiation]*wait{}, problems: map[string]Problem{}}
				conns := map[string]Connection{conn: {Child: child, Children: []string{child}}}
				start := time.Now()
				var tried []time.Duration
				for now := time.Duration(0); now < 40*time.Second; now += lookBusy {
					var sas []SA
					if len(tried) > 0 {
						last := tried[len(tried)-1]
						switch o := test.try(last); {
						case now-last < o.connecting:
							sas = []SA{{ID: "1", State: "CONNECTING"}}
						case now-last < o.connecting+o.up:
							sas = []SA{made("1", "a", now-last, child)}
						}
					}
					if begin, _, _ := n.judge(conns, map[string][]SA{conn: sas}, start.Add(now)); len(begin) > 0 {
						tried = append(tried, now)
					}
				}
				require.Equal(t, test.want, tried)
			})
		}
	}
}

// The waits of a tunnel that has lasted are forgotten, and those of earlier settings, too.
func TestWaitsAreForgotten(t *testing.T) {
	n := &negotiator{waits: map[initiation]*wait{}, problems: map[string]Problem{}}
	now := time.Now()
	_, _, _ = n.judge(map[string]Connection{"c": {Child: "first-1"}}, nil, now)
	require.Len(t, n.waits, 1)
	conns := map[string]Connection{"c": {Child: "first-2"}}
	sas := map[string][]SA{}
	_, _, _ = n.judge(conns, sas, now)
	require.Len(t, n.waits, 1)
	sas["c"] = []SA{made("1", "a", time.Second, "first-2")}
	_, _, _ = n.judge(conns, sas, now.Add(time.Second))
	require.Len(t, n.waits, 1, "it may not last")
	_, _, _ = n.judge(conns, sas, now.Add(lookIdle))
	require.Empty(t, n.waits)
}
