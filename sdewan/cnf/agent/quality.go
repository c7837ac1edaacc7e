package agent

import (
	"slices"
	"time"

	"subctl/sdewan/cnf"
	"subctl/sdewan/rest"
)

// ratedPings is the minimum number of pings of each host by which an uplink is judged. A round that
// has more counts as a whole.
const ratedPings = 20

// rate takes the result of a round into the quality of the uplink. t.mu is held.
func (t *tracker) rate(hosts []host) {
	rounds := max(1, (ratedPings+t.Count-1)/t.Count)
	t.recent = append(t.recent, hosts)
	t.recent = t.recent[max(0, len(t.recent)-rounds):]
	var lost []float64
	var latency, jitter []time.Duration
	for i := range hosts {
		var rtts []time.Duration
		sum := 0.0
		for _, round := range t.recent {
			sum += round[i].lost
			rtts = append(rtts, round[i].rtts...)
		}
		// at the beginning, one lost packet is not all
		lost = append(lost, sum/float64(rounds))
		if len(rtts) > 0 {
			latency = append(latency, mean(rtts))
			jitter = append(jitter, variation(rtts))
		}
	}
	t.ratings = append(t.ratings, cnf.Quality{
		Loss: nth(lost, t.Reliability), Latency: nth(latency, t.Reliability), Jitter: nth(jitter, t.Reliability),
	})
	t.ratings = t.ratings[max(0, len(t.ratings)-t.Up):]
}

// quality returns what the policies go by.
func (t *tracker) quality() (worst cnf.Quality) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range t.ratings {
		worst.Loss = max(worst.Loss, q.Loss)
		worst.Latency = max(worst.Latency, q.Latency)
		worst.Jitter = max(worst.Jitter, q.Jitter)
	}
	return worst
}

// nth returns the value that the n best ones do not exceed, or the worst one, or 0 without values.
func nth[T float64 | time.Duration](values []T, n int) T {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(n, len(values))-1]
}

func mean(all []time.Duration) time.Duration {
	var sum time.Duration
	for _, d := range all {
		sum += d
	}
	return sum / time.Duration(max(1, len(all)))
}

// variation returns the mean difference between a round-trip time and the next one.
func variation(all []time.Duration) time.Duration {
	var sum time.Duration
	for i := 1; i < len(all); i++ {
		sum += (all[i] - all[i-1]).Abs()
	}
	return sum / time.Duration(max(1, len(all)-1))
}

// judgedAnew reports whether a policy judges an uplink otherwise than in the last pass.
func (a *Agent) judgedAnew(name string, now cnf.Quality) bool {
	a.mu.Lock()
	i := slices.IndexFunc(a.world.Interfaces, func(f cnf.Interface) bool { return f.Name == name })
	if i < 0 {
		a.mu.Unlock()
		return false
	}
	before := a.world.Interfaces[i].Quality
	a.mu.Unlock()
	return slices.ContainsFunc(a.Config().Policies, func(p rest.Policy) bool {
		return slices.ContainsFunc(p.Members, func(m rest.Member) bool {
			return m.Interface == name && now.Exceeds(m) != before.Exceeds(m)
		})
	})
}

// qualityStatus returns the quality by which an uplink was judged last; nil if nothing is known.
func (a *Agent) qualityStatus(f cnf.Interface) *qualityStatus {
	if f.Quality == (cnf.Quality{}) {
		return nil
	}
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return &qualityStatus{
		Loss:    f.Quality.Loss,
		Latency: milliseconds(f.Quality.Latency),
		Jitter:  milliseconds(f.Quality.Jitter),
		Over:    exceeded(a.Config().Policies, f),
	}
}

// exceeded returns the names of the policies whose limits an uplink exceeds.
func exceeded(policies []rest.Policy, f cnf.Interface) (names []string) {
	for _, p := range policies {
		if slices.ContainsFunc(p.Members, func(m rest.Member) bool {
			return m.Interface == f.Name && f.Quality.Exceeds(m)
		}) {
			names = append(names, p.Name)
		}
	}
	return names
}
