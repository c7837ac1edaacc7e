package agent

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"subctl/internal/wake"
	"subctl/sdewan"
	"subctl/sdewan/cnf"

	probing "github.com/prometheus-community/pro-bing"
)

// tracker follows an uplink as mwan3track does. A round has succeeded if enough hosts have
// answered. The score starts at Down+Up, and is again that after each round that succeeds while the
// uplink is online; a failed round takes one away, and at Up the uplink is offline, with the score
// 0. Then a round that succeeds adds one, and a failed one takes all away; at Up the uplink is
// online again.
//
// As by mwan3, an uplink whose device comes up is online until pings fail. Unlike mwan3, an uplink
// that was offline before stays offline until a round has succeeded, of which one is enough: a
// modem has a link long before it has a line, and connections would choose an uplink that is known
// to be dead.
type tracker struct {
	device string
	mark   uint32
	sdewan.Uplink
	due wake.Signal // the next round, at once

	mu sync.Mutex
	up bool // the device
	// when pings begin at the latest, if the device has come up and the kernel may not have its
	// routes yet; zero if it has
	wait    time.Time
	cancel  context.CancelFunc // of the last round; nil before the first one
	online  bool
	back    bool // the device has come up since pings failed
	score   int
	lost    int // failed rounds in a row
	turn    int // rounds
	since   time.Time
	hosts   []host
	recent  [][]host      // the rounds that count for the quality, the last one last
	ratings []cnf.Quality // after each of the last Up rounds
}

// host is the last result of a host.
type host struct {
	ip      netip.Addr
	up      bool
	lost    float64 // share of packets, in percent
	latency time.Duration
	rtts    []time.Duration // of the packets that were answered
}

func newTracker(device string, mark uint32, u sdewan.Uplink) *tracker {
	t := &tracker{
		device: device,
		mark:   mark,
		Uplink: u,
		due:    wake.NewSignal(),
		online: true,
		score:  u.Down + u.Up,
		since:  time.Now(),
	}
	for _, ip := range u.TrackIPs {
		t.hosts = append(t.hosts, host{ip: ip})
	}
	return t
}

// run sends pings until the context ends. It calls changed when the uplink goes online or offline,
// and when judged reports that policies judge its quality otherwise than before.
func (t *tracker) run(
	ctx context.Context,
	ping func(context.Context, Ping) (float64, []time.Duration, error),
	judged func(cnf.Quality) bool,
	changed func(),
) {
	ticker := time.NewTicker(t.Period())
	defer ticker.Stop()
	for {
		if round := t.begin(ctx); round != nil {
			hosts := t.round(round, ping)
			if ctx.Err() != nil {
				return
			}
			if online := t.result(round, hosts); online || judged(t.quality()) {
				changed()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-t.due:
			ticker.Reset(t.Period())
		}
	}
}

// begin returns the context of a round, which ends when the state of the device changes; nil if
// pings make no sense now.
func (t *tracker) begin(ctx context.Context) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.up || time.Now().Before(t.wait) {
		return nil
	}
	ctx, t.cancel = context.WithCancel(ctx)
	return ctx
}

// round pings all hosts, at the same time.
func (t *tracker) round(
	ctx context.Context,
	ping func(context.Context, Ping) (float64, []time.Duration, error),
) []host {
	out := make([]host, len(t.TrackIPs))
	var all sync.WaitGroup
	for i, ip := range t.TrackIPs {
		all.Go(func() {
			lost, rtts, err := ping(
				ctx,
				Ping{
					Device:  t.device,
					Mark:    t.mark,
					To:      ip,
					Count:   t.Count,
					Timeout: time.Duration(t.Timeout) * time.Second,
				},
			)
			out[i] = host{ip: ip, up: err == nil && lost < 100, lost: lost, latency: mean(rtts), rtts: rtts}
			if err != nil {
				out[i].lost = 100
			}
		})
	}
	all.Wait()
	return out
}

// result takes the result of a round, and reports whether the uplink is online that was not, or the
// other way round. The result means nothing if the state of the device has changed since the round
// began.
func (t *tracker) result(round context.Context, hosts []host) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if round.Err() != nil {
		return false
	}
	t.cancel()
	answered := 0
	for _, h := range hosts {
		if h.up {
			answered++
		}
	}
	t.hosts = hosts
	t.rate(hosts)
	t.turn++
	was := t.online
	success := answered >= t.Reliability
	if t.lost++; success {
		t.lost = 0
	}
	switch {
	case t.online && success:
		t.score = t.Down + t.Up
	case t.online:
		if t.score--; t.score <= t.Up {
			t.online = false
			t.score = 0
		}
	case success:
		if t.score++; t.score >= t.Up || t.back {
			t.online, t.back, t.score = true, false, t.Down+t.Up
		}
	default:
		t.score = 0
	}
	if t.online != was {
		t.since = time.Now()
	}
	return t.online != was
}

// link takes the state of the device, and reports whether the uplink is online. If the device has
// come up, pings wait for routed: the kernel has removed the routes of a device that was down, and
// pings without them would fail. They do not wait for more than two Intervals: without routes for
// so long, the uplink is offline.
func (t *tracker) link(up bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if up != t.up && t.cancel != nil {
		t.cancel()
	}
	if up && !t.up {
		t.recent = nil
		t.ratings = nil
		t.wait = time.Now().Add(t.Period())
		if t.back = !t.online; t.online {
			t.score = t.Down + t.Up
			t.lost = 0
			t.since = time.Now()
		}
	}
	t.up = up
	return t.online
}

// routed notes that the kernel has the routes of the device, if it is up. The first round after
// that is due at once.
func (t *tracker) routed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.up && !t.wait.IsZero() {
		t.wait = time.Time{}
		t.due.Send()
	}
}

// Ping is a number of pings through a device.
type Ping struct {
	Device  string
	Mark    uint32 // of the packets: the policy rule for it leads to the table of the uplink
	To      netip.Addr
	Count   int
	Timeout time.Duration // for all of them
}

// ping sends pings with a raw socket, which needs CAP_NET_RAW.
func ping(ctx context.Context, p Ping) (lost float64, rtts []time.Duration, err error) {
	pinger := probing.New(p.To.String())
	pinger.SetPrivileged(true)
	pinger.SetMark(uint(p.Mark))
	pinger.InterfaceName = p.Device
	pinger.Count = p.Count
	pinger.Timeout = p.Timeout
	pinger.Interval = p.Timeout / time.Duration(2*p.Count)
	if err := pinger.RunWithContext(ctx); err != nil {
		return 100, nil, err
	}
	s := pinger.Statistics()
	if s.PacketsSent == 0 || s.PacketsRecv == 0 {
		return 100, nil, nil
	}
	return s.PacketLoss, s.Rtts, nil
}
