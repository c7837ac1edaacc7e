package natdiscovery

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/cable"
)

var west = Self{Endpoint{"west", "w"}, netip.MustParseAddr("10.0.0.2")}

func TestAnswer(t *testing.T) {
	ask := Request{
		Number: 5, Sender: Endpoint{"east", "e"}, Receiver: west.Endpoint,
		Src: netip.MustParseAddrPort("10.0.0.1:4490"), Dst: netip.MustParseAddrPort("10.0.0.2:4490"),
	}
	direct := netip.MustParseAddrPort("10.0.0.1:4490")
	for _, test := range []struct {
		name   string
		from   string
		change func(*Request)
		want   Type
		nat    [3]bool // of the source's address and port, of the destination's address
	}{
		{name: "direct", want: OK},
		{name: "source translated", from: "192.0.2.1:4490", want: NATDetected, nat: [3]bool{true, false, false}},
		{name: "source port translated", from: "10.0.0.1:1024", want: NATDetected, nat: [3]bool{false, true, false}},
		{
			name:   "asked at the public address",
			change: func(r *Request) { r.Dst = netip.MustParseAddrPort("192.0.2.2:4490") },
			want:   NATDetected,
			nat:    [3]bool{false, false, true},
		},
		{
			name:   "another port, forwarded",
			change: func(r *Request) { r.Dst = netip.MustParseAddrPort("10.0.0.2:14490") },
			want:   OK,
		},
		{
			name:   "source unknown to the sender",
			from:   "192.0.2.1:4490",
			change: func(r *Request) { r.Src = netip.AddrPortFrom(netip.Addr{}, 4490) },
			want:   OK,
		},
		{name: "another cluster", change: func(r *Request) { r.Receiver.Cluster = "north" }, want: UnknownCluster},
		{name: "another gateway", change: func(r *Request) { r.Receiver.Cable = "w2" }, want: UnknownEndpoint},
		{name: "no sender", change: func(r *Request) { r.Sender = Endpoint{} }, want: Malformed},
		{name: "no receiver", change: func(r *Request) { r.Receiver = Endpoint{} }, want: Malformed},
		{name: "no source", change: func(r *Request) { r.Src = netip.AddrPort{} }, want: Malformed},
		{name: "no destination", change: func(r *Request) { r.Dst = netip.AddrPort{} }, want: Malformed},
		{name: "nothing", change: func(r *Request) { *r = Request{Number: 5} }, want: Malformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := ask
			from := direct
			if test.from != "" {
				from = netip.MustParseAddrPort(test.from)
			}
			if test.change != nil {
				test.change(&r)
			}
			require.Equal(t, Response{
				Number: 5, Type: test.want, Sender: r.Receiver, Receiver: r.Sender, ReceivedSrc: from, Size: 99,
				SrcIPNAT: test.nat[0], SrcPortNAT: test.nat[1], DstIPNAT: test.nat[2],
			}, Answer(west, r, from, 99))
		})
	}
}

// An answer is never larger than a question that could be one.
func TestAnswersAreSmall(t *testing.T) {
	for _, k := range []Key{{}, {1}} {
		r := Request{
			Number: 1, Sender: Endpoint{"e", "e"}, Receiver: west.Endpoint,
			Src: netip.MustParseAddrPort("10.0.0.1:4490"), Dst: netip.MustParseAddrPort("10.0.0.2:4490"),
		}
		b := r.Encode(0, k)
		require.LessOrEqual(t, len(Answer(west, r, netip.MustParseAddrPort("203.0.113.113:65535"), MaxSize).Encode(k)),
			len(b))
	}
}

func TestCandidates(t *testing.T) {
	const port = 4490
	at := netip.MustParseAddrPort
	private := at("10.0.0.2:4490")
	public := at("192.0.2.2:4490")
	elsewhere := at("198.51.100.9:1234")
	for _, test := range []struct {
		name            string
		public, learned netip.AddrPort
		want            []Candidate
	}{
		{"private alone", netip.AddrPort{}, netip.AddrPort{}, []Candidate{{Private, private}}},
		{"all", public, elsewhere, []Candidate{{Private, private}, {Public, public}, {Learned, elsewhere}}},
		{"public is private", private, netip.AddrPort{}, []Candidate{{Private, private}}},
		{"learned is private", netip.AddrPort{}, private, []Candidate{{Private, private}}},
		{"learned is public", public, public, []Candidate{{Private, private}, {Public, public}}},
		{
			"learned is a port of the public",
			public,
			at("192.0.2.2:99"),
			[]Candidate{{Private, private}, {Public, public}, {Learned, at("192.0.2.2:99")}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := cable.Gateway{PrivateIP: private.Addr(), PublicIP: test.public.Addr()}
			require.Equal(t, test.want, Candidates(g, port, test.learned))
		})
	}
}

func TestUnasked(t *testing.T) {
	private := netip.MustParseAddr("10.0.0.2")
	public := netip.MustParseAddr("192.0.2.2")
	for _, test := range []struct {
		g    cable.Gateway
		want netip.Addr
		nat  bool
	}{
		{cable.Gateway{PrivateIP: private}, private, false},
		{cable.Gateway{PrivateIP: private, PublicIP: public}, private, false},
		{cable.Gateway{PrivateIP: private, PublicIP: public, NAT: true}, public, true},
		{cable.Gateway{PrivateIP: private, NAT: true}, private, false},
	} {
		got, nat := Unasked(test.g)
		require.Equal(t, test.want, got)
		require.Equal(t, test.nat, nat)
	}
}

func TestChoose(t *testing.T) {
	attempt := func(k Kind, answered bool) Attempt {
		return Attempt{Candidate: Candidate{Kind: k}, Answered: answered}
	}
	for _, test := range []struct {
		attempts []Attempt
		want     Kind
		found    bool
	}{
		{nil, 0, false},
		{[]Attempt{attempt(Private, false), attempt(Public, false)}, 0, false},
		{[]Attempt{attempt(Private, false), attempt(Learned, true), attempt(Public, true)}, Public, true},
		{[]Attempt{attempt(Learned, true), attempt(Private, true), attempt(Public, true)}, Private, true},
		{[]Attempt{attempt(Private, false), attempt(Public, false), attempt(Learned, true)}, Learned, true},
	} {
		best, found := Choose(test.attempts)
		require.Equal(t, test.found, found)
		require.Equal(t, test.want, best.Kind)
	}
}

func TestLine(t *testing.T) {
	at := func(k Kind) Candidate { return Candidate{k, netip.MustParseAddrPort("192.0.2.7:4490")} }
	for _, test := range []struct {
		a    Attempt
		want string
	}{
		{Attempt{Candidate: at(Private)}, "192.0.2.7:4490 private: no answer in 3 s"},
		{
			Attempt{Candidate: at(Public), Answered: true, Translated: true, RTT: 12 * time.Millisecond},
			"192.0.2.7:4490 public: answered in 12 ms, address translated",
		},
		{
			Attempt{Candidate: at(Private), Answered: true, RTT: 340 * time.Microsecond},
			"192.0.2.7:4490 private: answered in 0.3 ms",
		},
		{
			Attempt{Candidate: at(Learned), Answered: true, Translated: true, RTT: 1234 * time.Millisecond},
			"192.0.2.7:4490 learned: answered in 1.2 s, address translated",
		},
		{
			Attempt{Candidate: at(Private), Barred: "it is in 192.0.2.0/24 of cluster evil"},
			"192.0.2.7:4490 private: not asked: it is in 192.0.2.0/24 of cluster evil",
		},
		{
			Attempt{Candidate: at(Public), Problem: "it is another cluster's gateway"},
			"192.0.2.7:4490 public: it is another cluster's gateway",
		},
	} {
		require.Equal(t, test.want, test.a.Line(3*time.Second))
	}
	require.Equal(t, "192.0.2.7:4490 public: not waited for", Attempt{Candidate: at(Public)}.Line(0))
}

// search runs a search over a path of some MTU, and returns how many steps it took.
func search(local, path, known int) (found, steps int) {
	s := NewMTUSearch(local)
	for sizes := s.First(known); len(sizes) > 0; sizes = s.Next() {
		var passed []int
		for _, size := range sizes {
			if size <= path {
				passed = append(passed, size)
			}
		}
		s = s.After(sizes, passed)
		steps++
	}
	return s.Passed, steps
}

func TestMTUSearch(t *testing.T) {
	for _, test := range []struct{ local, path, known, want, steps int }{
		{1500, 1500, 0, 1500, 1}, // the common case
		{1500, 9000, 0, 1500, 1},
		{1500, 1499, 0, 1499, 3},
		{1500, 1400, 0, 1400, 3},
		{1500, 1400, 1400, 1400, 1}, // measured before, and the same
		{1500, 1500, 1400, 1500, 1}, // widened
		{1500, 1450, 1400, 1450, 3},
		{1500, 1300, 1400, 1300, 3}, // shrunk
		{1500, 576, 0, 576, 3},
		{1500, 575, 0, 0, 3},
		{9000, 1500, 0, 1500, 4},
		{65535, 1500, 0, 1500, 5},
		{576, 576, 0, 576, 1},
		{500, 576, 0, 500, 1},
	} {
		found, steps := search(test.local, test.path, test.known)
		require.Equal(t, test.want, found, "%+v", test)
		require.LessOrEqual(t, steps, test.steps, "%+v", test)
	}
	for path := 575; path <= 1500; path++ {
		want := path
		if path < MinMTU {
			want = 0
		}
		found, _ := search(1500, path, 0)
		require.Equal(t, want, found)
	}
}

// A lost packet costs no more than its own size.
func TestMTUSearchSurvivesLoss(t *testing.T) {
	s := NewMTUSearch(1500).After([]int{1500}, nil)
	sizes := s.Next()
	s = s.After(sizes, []int{sizes[0], sizes[7]}) // the largest came through, others did not
	require.Equal(t, sizes[0], s.Passed)
	require.Equal(t, 1500, s.Lost)
}
