package discovery

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/cable/natdiscovery"
	"subctl/dataplane"
	"subctl/dataplane/kernel"
)

// What anybody may send neither leads a gateway astray nor makes it shout.
func TestDiscoveryHostile(t *testing.T) {
	w, nat, router, e := wan(t)
	nat.Run(masquerade)
	west, east := newSeeker(t, w, "west", "10.0.1.1"), newSeeker(t, e, "east", "192.0.2.1")
	west.search.Local = west.local
	peer := west.peer("")
	east.start(t, peer)
	var conn *kernel.UDP
	router.Do(func() {
		var err error
		conn, err = kernel.ListenUDP(t.Context(), dataplane.NATDiscoveryPort)
		require.NoError(t, err)
	})
	defer conn.Close()
	from, to := netip.MustParseAddr("198.51.100.2"), netip.MustParseAddrPort("192.0.2.1:4490")
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
			_ = conn.Send(natdiscovery.Answer(west.self(), *m.Request, asker, n).Encode(natdiscovery.Key{1}), at, asker)
		}
	}()
	names := natdiscovery.Request{
		Number: 1, Sender: natdiscovery.Endpoint{Cluster: "west", Cable: peer.Name}, Receiver: east.self().Endpoint,
		Src: netip.MustParseAddrPort("10.0.1.1:4490"), Dst: to,
	}
	// It speaks for west, without the key, and with another.
	for _, key := range []natdiscovery.Key{{}, {1}} {
		b := names.Encode(0, key)
		require.Eventually(t, func() bool { // until east listens
			require.NoError(t, conn.Send(b, from, to))
			return len(answers) > 0
		}, 2*time.Second, 20*time.Millisecond)
		time.Sleep(50 * time.Millisecond)
		for len(answers) > 0 {
			require.LessOrEqual(t, <-answers, len(b))
		}
	}
	// What is no message, and questions too small for their answers, are not answered.
	for _, b := range [][]byte{nil, {0xff}, make([]byte, 1400), natdiscovery.Request{Number: 1}.Encode(0, natdiscovery.Key{})} {
		require.NoError(t, conn.Send(b, from, to))
	}
	// Answers to no question.
	require.NoError(t, conn.Send(natdiscovery.Response{Number: 1, Sender: names.Sender, Receiver: names.Receiver}.Encode(natdiscovery.Key{}), from, to))
	time.Sleep(50 * time.Millisecond)
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
	require.Contains(t, path.Attempts[1], "learned: the answer is not signed with this pair's key")
	west.start(t, east.peer(""))
	require.Equal(t, "198.51.100.1", east.finds(t, peer, 4*time.Second, func(p natdiscovery.Path) bool { return p.MTU != 0 }).Address.String())
}

// An answer counts if it comes from where was asked, to the question that was asked,
// from the gateway that was asked for.
func TestDiscoveryForgedAnswers(t *testing.T) {
	w, _, router, e := wan(t)
	router.Run("ip route add 10.0.1.0/24 via 198.51.100.1")
	west, east := newSeeker(t, w, "west", "10.0.1.1"), newSeeker(t, e, "east", "192.0.2.1")
	var conn, other *kernel.UDP
	w.Do(func() {
		var err error
		conn, err = kernel.ListenUDP(t.Context(), dataplane.NATDiscoveryPort)
		require.NoError(t, err)
		other, err = kernel.ListenUDP(t.Context(), 4491)
		require.NoError(t, err)
	})
	defer conn.Close()
	defer other.Close()
	peer := west.peer("")
	east.start(t, peer)
	buf := make([]byte, 1<<16)
	forge := func(change func(*natdiscovery.Response), via *kernel.UDP) {
		n, from, to, err := conn.Receive(buf)
		require.NoError(t, err)
		m, err := natdiscovery.Parse(buf[:n])
		require.NoError(t, err)
		a := natdiscovery.Answer(west.self(), *m.Request, from, n)
		change(&a)
		require.NoError(t, via.Send(a.Encode(natdiscovery.Key{}), to, from))
	}
	west.search.Local = west.local
	forge(func(a *natdiscovery.Response) { a.Number++ }, conn)
	forge(func(*natdiscovery.Response) {}, other)
	forge(func(a *natdiscovery.Response) { a.Sender.Cluster = "north" }, conn)
	forge(func(a *natdiscovery.Response) { a.Receiver.Cable = "another" }, conn)
	forge(func(a *natdiscovery.Response) { a.Type = natdiscovery.UnknownEndpoint }, conn)
	path := east.finds(t, peer, 4*time.Second, func(p natdiscovery.Path) bool { return p.Done })
	require.False(t, path.Address.IsValid())
	require.Equal(t, []string{"10.0.1.1:4490 private: the answer is a refusal: UNKNOWN_DST_ENDPOINT"}, path.Attempts)
	east.known[peer.Name].again.Send()
	// the questions of the first look that were left unanswered
	for {
		n, from, to, err := conn.Receive(buf)
		require.NoError(t, err)
		m, err := natdiscovery.Parse(buf[:n])
		require.NoError(t, err)
		require.NoError(t, conn.Send(natdiscovery.Answer(west.self(), *m.Request, from, n).Encode(natdiscovery.Key{}), to, from))
		if east.Paths()[peer.Name].Address.IsValid() {
			break // without authentication: as Submariner's gateways answer
		}
	}
}
