package discovery

import (
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"subctl/cable"
	"subctl/cable/natdiscovery"
	"subctl/dataplane"
	kernelprobe "subctl/dataplane/kernel/probe"
	"subctl/internal/wake"
)

// What anybody may send neither leads a gateway astray nor makes it shout.
func TestHostileDiscovery(t *testing.T) {
	w, nat, router, e := wan(t)
	nat.Run(masquerade)
	west := newSeeker(t, w, "west", "10.0.1.1")
	east := newSeeker(t, e, "east", "192.0.2.1")
	west.search.Local = west.local
	peer := west.peer("")
	east.start(t, peer)
	var conn *kernelprobe.UDP
	router.Do(func() {
		var err error
		conn, err = kernelprobe.ListenUDP(t.Context(), dataplane.NATDiscoveryPort)
		require.NoError(t, err)
	})
	defer conn.Close()
	from := netip.MustParseAddr("198.51.100.2")
	to := netip.MustParseAddrPort("192.0.2.1:4490")
	answers := make(chan int, 1<<16)
	var questions atomic.Int64 // that it was asked, as west
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, asker, at, err := conn.Receive(buf)
			if err != nil {
				return
			}
			m, err := natdiscovery.Parse(buf[:n])
			if err != nil || m.Request == nil {
				answers <- n
				continue
			}
			questions.Add(1)
			answer := natdiscovery.Answer(west.ownIdentity(), *m.Request, asker, n)
			_ = conn.Send(answer.Encode(natdiscovery.Key{1}), at, asker)
		}
	}()
	names := natdiscovery.Request{
		Number: 1, Sender: natdiscovery.Endpoint{Cluster: "west", Cable: peer.Name}, Receiver: east.ownIdentity().Endpoint,
		Src: netip.MustParseAddrPort("10.0.1.1:4490"), Dst: to,
	}
	// It speaks for west, without the key, and with another.
	for _, key := range []natdiscovery.Key{{}, {1}} {
		b := names.Encode(0, key)
		require.Eventually(t, func() bool { // until east listens
			require.NoError(t, conn.Send(b, from, to))
			return len(answers) > 0
		}, 10*time.Second, 20*time.Millisecond)
		for quiet := false; !quiet; {
			select {
			case n := <-answers:
				require.LessOrEqual(t, n, len(b))
			case <-time.After(500 * time.Millisecond):
				quiet = true
			}
		}
	}
	// What is no message, and questions too small for their answers, are not answered.
	for _, b := range [][]byte{
		nil,
		{0xff},
		make([]byte, 1400),
		natdiscovery.Request{Number: 1}.Encode(0, natdiscovery.Key{}),
	} {
		require.NoError(t, conn.Send(b, from, to))
	}
	// Answers to no question.
	require.NoError(
		t,
		conn.Send(
			natdiscovery.Response{Number: 1, Sender: names.Sender, Receiver: names.Receiver}.Encode(natdiscovery.Key{}),
			from, to),
	)
	// A question after them is, so they have arrived.
	require.NoError(t, conn.Send(names.Encode(0, natdiscovery.Key{}), from, to))
	select {
	case <-answers:
	case <-time.After(10 * time.Second):
		t.Fatal("no answer to a question")
	}
	require.Empty(t, answers)
	// A flood is answered up to a limit, and does not keep a gateway from being found.
	start := time.Now()
	for range 4 * answersToOthers {
		require.NoError(t, conn.Send(names.Encode(0, natdiscovery.Key{}), from, to))
	}
	limit := answersToOthers * (1 + int(time.Since(start).Seconds()+1))
	time.Sleep(50 * time.Millisecond)
	require.LessOrEqual(t, len(answers), limit)
	path := east.finds(t, peer, 4*time.Second, func(p natdiscovery.Path) bool { return p.Done })
	require.False(t, path.Address.IsValid(), "nobody but the attacker has answered")
	require.Zero(t, questions.Load(), "it was believed to be west")
	// Even where it is asked, as by a gateway that once was there, it is not believed.
	east.mu.Lock()
	east.known[peer.Name].learned = netip.AddrPortFrom(from, dataplane.NATDiscoveryPort)
	east.mu.Unlock()
	east.known[peer.Name].again.Send()
	path = east.finds(t, peer, 5*time.Second, func(p natdiscovery.Path) bool { return len(p.Attempts) == 2 })
	require.False(t, path.Address.IsValid())
	require.Contains(t, path.Attempts[1], "learned: "+unsigned)
	west.start(t, east.peer(""))
	require.Equal(t, "198.51.100.1",
		east.finds(t, peer, 4*time.Second, func(p natdiscovery.Path) bool { return p.MTU != 0 }).Address.String())
}

// An answer counts if it is signed with the key of the pair, comes from where was asked, to the
// question that was asked, from the gateway that was asked for. A forged answer that comes first
// does not keep the true one from counting.
func TestHostileAnswers(t *testing.T) {
	w, _, router, e := wan(t)
	router.Run("ip route add 10.0.1.0/24 via 198.51.100.1")
	west := newSeeker(t, w, "west", "10.0.1.1")
	east := newSeeker(t, e, "east", "192.0.2.1")
	var conn, other *kernelprobe.UDP
	w.Do(func() {
		var err error
		conn, err = kernelprobe.ListenUDP(t.Context(), dataplane.NATDiscoveryPort)
		require.NoError(t, err)
		other, err = kernelprobe.ListenUDP(t.Context(), 4491)
		require.NoError(t, err)
	})
	defer conn.Close()
	defer other.Close()
	peer := west.peer("")
	east.start(t, peer)
	key, err := west.local.Keys.Pair("east", east.local.Keys.Private.Public(), natdiscovery.KeyPurpose)
	require.NoError(t, err)
	west.search.Local = west.local
	buf := make([]byte, 1<<16)
	// ask waits for a question, and returns its answer and where it is to be sent.
	ask := func() (natdiscovery.Response, netip.Addr, netip.AddrPort) {
		n, from, to, err := conn.Receive(buf)
		require.NoError(t, err)
		m, err := natdiscovery.Parse(buf[:n])
		require.NoError(t, err)
		require.True(t, m.Authentic(key), "the question is signed")
		return natdiscovery.Answer(west.ownIdentity(), *m.Request, from, n), to, from
	}
	old, _, _ := ask()
	forge := func(change func(*natdiscovery.Response), via *kernelprobe.UDP, key natdiscovery.Key) {
		a, to, from := ask()
		change(&a)
		require.NoError(t, via.Send(a.Encode(key), to, from))
	}
	same := func(*natdiscovery.Response) {}
	forge(func(a *natdiscovery.Response) { a.Number++ }, conn, key)
	forge(same, other, key)
	forge(func(a *natdiscovery.Response) { a.Sender.Cluster = "north" }, conn, key)
	forge(func(a *natdiscovery.Response) { a.Receiver.Cable = "another" }, conn, key)
	forge(func(a *natdiscovery.Response) { a.Number = old.Number; a.Number++ }, conn, key)
	forge(same, conn, natdiscovery.Key{1})
	forge(same, conn, natdiscovery.Key{})
	path := east.finds(t, peer, 4*time.Second, func(p natdiscovery.Path) bool { return p.Done })
	require.False(t, path.Address.IsValid())
	require.Equal(t, []string{"10.0.1.1:4490 private: " + unsigned}, path.Attempts)
	east.known[peer.Name].again.Send()
	for !east.Paths()[peer.Name].Address.IsValid() {
		a, to, from := ask()
		require.NoError(t, conn.Send(a.Encode(natdiscovery.Key{}), to, from)) // the attacker is faster
		require.NoError(t, conn.Send(a.Encode(key), to, from))
	}
}

// Questions that were recorded and are sent again from elsewhere do not redirect anybody.
func TestHostileReplay(t *testing.T) {
	d := New(nil, slog.New(slog.DiscardHandler), func() {})
	key := natdiscovery.Key{1}
	west := natdiscovery.Endpoint{Cluster: "west", Cable: "w"}
	peer := cable.Peer{Gateway: cable.Gateway{Cluster: "west", Name: "w", PrivateIP: netip.MustParseAddr("10.0.1.1")}}
	d.search.Local = cable.Local{
		Gateway: cable.Gateway{Cluster: "east", Name: "e", PrivateIP: netip.MustParseAddr("192.0.2.1")},
	}
	k := &known{
		peer:    peer,
		port:    4490,
		key:     key,
		again:   wake.NewSignal(),
		limiter: rate.NewLimiter(answersToPeer, answersToPeer),
	}
	d.known["w"] = k
	d.anyOf = map[string]string{"west": "w"}
	var sent sink
	ask := func(q natdiscovery.Request, from string) {
		m, err := natdiscovery.Parse(q.Encode(0, key))
		require.NoError(t, err)
		d.answer(&sent, m, len(q.Encode(0, key)), netip.MustParseAddrPort(from), netip.MustParseAddr("192.0.2.1"))
	}
	q := natdiscovery.Request{
		Number: 1, Sender: west, Receiver: d.ownIdentity().Endpoint, Cookie: natdiscovery.NoCookie,
		Src: netip.MustParseAddrPort("10.0.1.1:4490"), Dst: netip.MustParseAddrPort("192.0.2.1:4490"),
	}
	const home, thief = "198.51.100.1:20001", "203.0.113.9:4490"
	ask(q, home)
	require.False(t, k.learned.IsValid(), "a question without a cookie may be an old one")
	answer, err := natdiscovery.Parse(sent)
	require.NoError(t, err)
	require.True(t, answer.Authentic(key))
	fresh := q
	fresh.Number = 2
	fresh.Cookie = answer.Response.Cookie
	ask(fresh, home)
	require.Equal(t, home, k.learned.String())
	ask(fresh, thief)
	ask(q, thief)
	require.Equal(t, home, k.learned.String())
	for n := range uint64(2 * maxSeen) {
		fresh.Number = 10 + n
		ask(fresh, home)
		k.limiter = rate.NewLimiter(answersToPeer, answersToPeer)
	}
	require.LessOrEqual(t, len(k.fresh.seen), maxSeen)
	fresh.Number = 2 // forgotten, but so is the cookie
	ask(fresh, thief)
	require.Equal(t, home, k.learned.String())
}

// A flood of questions in the name of a gateway, without its key, does not use up its rate.
func TestHostileFlood(t *testing.T) {
	d := New(nil, slog.New(slog.DiscardHandler), func() {})
	key := natdiscovery.Key{1}
	peer := cable.Peer{Gateway: cable.Gateway{Cluster: "west", Name: "w", PrivateIP: netip.MustParseAddr("10.0.1.1")}}
	d.search.Local = cable.Local{
		Gateway: cable.Gateway{Cluster: "east", Name: "e", PrivateIP: netip.MustParseAddr("192.0.2.1")},
	}
	d.known["w"] = &known{
		peer:    peer,
		port:    4490,
		key:     key,
		again:   wake.NewSignal(),
		limiter: rate.NewLimiter(answersToPeer, answersToPeer),
	}
	d.anyOf = map[string]string{"west": "w"}
	q := natdiscovery.Request{
		Number:   1,
		Sender:   natdiscovery.Endpoint{Cluster: "west", Cable: "w"},
		Receiver: d.ownIdentity().Endpoint,
		Cookie:   natdiscovery.NoCookie,
		Src:      netip.MustParseAddrPort("10.0.1.1:4490"),
		Dst:      netip.MustParseAddrPort("192.0.2.1:4490"),
	}
	ask := func(key natdiscovery.Key) (answered bool) {
		b := q.Encode(0, key)
		sent := sink(nil)
		m, err := natdiscovery.Parse(b)
		require.NoError(t, err)
		d.answer(&sent, m, len(b), netip.MustParseAddrPort("10.0.1.1:4490"), netip.MustParseAddr("192.0.2.1"))
		return sent != nil
	}
	d.others = rate.NewLimiter(0, 10)
	for range 100 {
		ask(natdiscovery.Key{})
		ask(natdiscovery.Key{9})
	}
	require.False(t, ask(natdiscovery.Key{9}), "the flood is limited")
	require.True(t, ask(key))
	// Another gateway of the cluster, whose Endpoint is not known yet, has the same key.
	q.Sender.Cable = "new"
	require.True(t, ask(key))
}

// sink keeps the last datagram that was sent.
type sink []byte

func (s *sink) Send(b []byte, _ netip.Addr, _ netip.AddrPort) error { *s = b; return nil }
func (s *sink) Receive([]byte) (int, netip.AddrPort, netip.Addr, error) {
	return 0, netip.AddrPort{}, netip.Addr{}, net.ErrClosed
}
func (s *sink) Close() error { return nil }
