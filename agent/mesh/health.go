package mesh

import (
	"math"
	"net/netip"
	"time"

	submarinerv1 "subctl/api/submariner/v1"
)

// Probes are the addresses to ping.
type Probes struct {
	Interval time.Duration // between pings of one target
	// Retry, if not zero, is the time to the next ping of a target that has not answered; it
	// doubles with every lost ping, up to Interval.
	Retry   time.Duration
	MaxLost int // pings in a row that may stay unanswered
	Targets map[string]Target
}

// Pause returns the time from a ping to the next. connected reports whether the target
// answered before, and lost is the number of pings in a row that it has not answered.
func (p Probes) Pause(connected bool, lost int) time.Duration {
	if p.Retry == 0 || connected && lost == 0 {
		return p.Interval
	}
	pause := p.Retry
	for range lost {
		if pause *= 2; pause >= p.Interval {
			return p.Interval
		}
	}
	return min(pause, p.Interval)
}

// Target is an address to ping and the address to ping it from.
type Target struct {
	IP, From netip.Addr
	// Eager has it pinged more often than Interval: a change of cables waits for the answer.
	Eager bool
	// First is when to ping it first; the zero time: at once.
	First time.Time
}

// Health is the result of pinging one target.
type Health struct {
	Status  submarinerv1.ConnectionStatus
	Message string
	RTT     RTT
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

// Mean returns the average in seconds; false if there is none.
func (r RTT) Mean() (seconds float64, ok bool) { return r.mean / float64(time.Second), r.n > 0 }

// reported returns the RTT as objects hold it; nil if there is none.
func (r RTT) reported() *submarinerv1.LatencyRTT {
	if r.n == 0 {
		return nil
	}
	return &submarinerv1.LatencyRTT{
		Last: r.last.String(), Min: r.min.String(), Max: r.max.String(),
		Average: time.Duration(r.mean).String(),
		StdDev:  time.Duration(math.Sqrt(r.squaredFromAvg / float64(r.n))).String(),
	}
}
