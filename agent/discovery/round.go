package discovery

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"subctl/cable"
	"subctl/cable/natdiscovery"
	"subctl/dataplane"
)

// The timing of the search for the MTU of a path.
const (
	mtuFor     = 2 * time.Second        // the length of the search; then the largest packet that got through counts
	mtuRepeat  = 30 * time.Millisecond  // between copies of a question
	mtuCopies  = 3                      // of each question, any of which may get lost
	mtuPatient = 200 * time.Millisecond // the wait for answers, in addition to the round trip time
)

// round is one search for a gateway.
type round struct {
	d        *Finder
	conn     Datagrams
	k        *known
	peer     cable.Peer
	self     natdiscovery.Self
	key      natdiscovery.Key // the zero Key if the two clusters share none
	attempts []natdiscovery.Attempt
	answers  chan answer
	numbers  []uint64
	waited   time.Duration
}

// question is a datagram that may be answered.
type question struct {
	to      netip.AddrPort
	key     natdiscovery.Key
	attempt int
	size    int // of the message, in bytes
	sent    time.Time
	answers chan<- answer
	of      *known // the gateway that is asked
	cookie  uint64
	forged  bool // an answer came that is not signed with the key
}

// answer is an answer and its question.
type answer struct {
	natdiscovery.Response
	*question
	authentic bool
	rtt       time.Duration
}

func (d *Finder) newRound(conn Datagrams, k *known) *round {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &round{d: d, conn: conn, k: k, peer: k.peer, self: d.ownIdentity(), answers: make(chan answer, 256)}
	k.key = d.pairKey(k.peer) // ours may have changed
	r.key = k.key
	r.addCandidates()
	return r
}

// ownIdentity returns this gateway as others ask for it.
func (d *Finder) ownIdentity() natdiscovery.Self {
	return natdiscovery.Self{
		Endpoint:  natdiscovery.Endpoint{Cluster: d.search.Local.Cluster, Cable: d.search.Local.Name},
		PrivateIP: d.search.Local.PrivateIP,
	}
}

// addCandidates adds the addresses at which the gateway can be asked and that are new.
func (r *round) addCandidates() {
	for _, c := range natdiscovery.Candidates(r.k.peer.Gateway, uint16(r.k.port), r.k.learned) {
		if !slices.ContainsFunc(r.attempts, func(a natdiscovery.Attempt) bool { return a.Candidate == c }) {
			r.attempts = append(r.attempts, natdiscovery.Attempt{Candidate: c, Barred: r.d.whyBarred(c.To.Addr())})
		}
	}
}

// forgetQuestions forgets the questions.
func (r *round) forgetQuestions() {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	for _, n := range r.numbers {
		delete(r.d.asked, n)
	}
}

// unsigned is the problem of an answer whose sender did not show that it has the key of the pair.
const unsigned = "the answer is not signed with this pair's key"

// onlyUnsigned reports whether all that came were answers without the key of the pair.
func (r *round) onlyUnsigned() bool {
	return slices.ContainsFunc(r.attempts, func(a natdiscovery.Attempt) bool { return a.Problem == unsigned })
}

// attemptTexts returns the attempts and their results as text. The Finder is locked.
func (r *round) attemptTexts() []string {
	for _, n := range r.numbers {
		if q := r.d.asked[n]; q != nil && q.forged {
			r.attempts[q.attempt].Problem = unsigned
		}
	}
	var out []string
	for _, a := range r.attempts {
		out = append(out, a.Line(r.waited))
	}
	return out
}

// findAddress asks at all addresses at once until the preferred one answers, until betterIn after
// another one has answered, or for askFor.
func (r *round) findAddress(ctx context.Context) (natdiscovery.Attempt, bool) {
	start := time.Now()
	for end := start.Add(askFor); time.Now().Before(end) && ctx.Err() == nil; {
		for i, a := range r.attempts {
			if !a.Answered && a.Barred == "" {
				r.ask(i, 0)
			}
		}
		for a := range r.answersUntil(ctx, min(askEvery, time.Until(end))) {
			if !r.accept(a) {
				continue
			}
			if best, _ := natdiscovery.Choose(r.attempts); best.Kind == natdiscovery.Private {
				return best, true
			}
			if soon := time.Now().Add(betterIn); soon.Before(end) {
				end = soon
			}
		}
		r.waited = time.Since(start)
		r.d.mu.Lock()
		r.addCandidates()
		r.d.mu.Unlock()
	}
	return natdiscovery.Choose(r.attempts)
}

// answersUntil yields answers for some time.
func (r *round) answersUntil(ctx context.Context, patience time.Duration) func(func(answer) bool) {
	return func(yield func(answer) bool) {
		over := time.After(patience)
		for {
			select {
			case <-ctx.Done():
				return
			case <-over:
				return
			case a := <-r.answers:
				if !yield(a) {
					return
				}
			}
		}
	}
}

// ask sends a question, padded to size bytes; 0 for no padding.
func (r *round) ask(attempt, size int) {
	a := &r.attempts[attempt]
	var random [8]byte
	rand.Read(random[:]) // never fails
	number := binary.NativeEndian.Uint64(random[:])
	r.d.mu.Lock()
	cookie := uint64(0)
	if r.key != (natdiscovery.Key{}) {
		cookie = cmp.Or(r.k.fresh.theirs, natdiscovery.NoCookie)
	}
	r.d.mu.Unlock()
	b := natdiscovery.Request{
		Cookie:   cookie,
		Number:   number,
		Sender:   r.self.Endpoint,
		Receiver: natdiscovery.Endpoint{Cluster: r.peer.Cluster, Cable: r.peer.Name},
		Src:      netip.AddrPortFrom(r.self.PrivateIP, dataplane.NATDiscoveryPort),
		Dst:      a.To,
	}.Encode(size, r.key)
	r.d.mu.Lock()
	r.numbers = append(r.numbers, number)
	r.d.asked[number] = &question{
		to:      a.To,
		key:     r.key,
		attempt: attempt,
		size:    len(b),
		sent:    time.Now(),
		answers: r.answers,
		of:      r.k,
		cookie:  cookie,
	}
	r.d.mu.Unlock()
	// A question that is too large for the node's own device counts as lost.
	if err := r.conn.Send(b, r.self.PrivateIP, a.To); err != nil && !(size > 0 && errors.Is(err, syscall.EMSGSIZE)) {
		a.Problem = fmt.Sprintf("cannot be sent to: %v", err)
	}
}

// accept records the answer to a question without padding, and reports whether it means
// that the gateway was reached.
func (r *round) accept(a answer) bool {
	t := &r.attempts[a.attempt]
	switch {
	case t.Answered:
		return false // to an earlier copy
	case a.Type != natdiscovery.OK && a.Type != natdiscovery.NATDetected:
		t.Problem = "the answer is a refusal: " + a.Type.String()
		return false
	case a.Sender != natdiscovery.Endpoint{Cluster: r.peer.Cluster, Cable: r.peer.Name} ||
		a.Receiver != r.self.Endpoint:
		t.Problem = "the answer came from a different gateway"
		return false
	case t.Kind == natdiscovery.Learned && !a.authentic: // the pair has no key
		t.Problem = unsigned
		return false
	}
	t.Answered = true
	t.Authentic = a.authentic
	t.Translated = a.Type == natdiscovery.NATDetected
	t.RTT = a.rtt
	if a.Size == a.size {
		t.Size = a.Size
	}
	if a.Cookie != a.cookie && a.Cookie != 0 { // now the gateway believes that the question is new
		r.ask(a.attempt, 0)
	}
	if ip, err := cable.ParseHost(a.ReceivedSrc.Addr().String()); err == nil && a.SrcIPNAT && a.authentic {
		t.SeenAs = ip
	}
	return true
}

// mtu returns the size of the largest packet that gets through, in bytes; 0 if the gateway
// does not report sizes, or no packet of a sensible size gets through.
func (r *round) mtu(ctx context.Context, best natdiscovery.Attempt) int {
	if best.Size == 0 {
		return 0
	}
	attempt := slices.IndexFunc(r.attempts, func(a natdiscovery.Attempt) bool { return a.Candidate == best.Candidate })
	r.d.mu.Lock()
	known := r.k.path.MTU
	search := natdiscovery.NewMTUSearch(r.d.search.Local.MTU)
	r.d.mu.Unlock()
	end := time.Now().Add(mtuFor)
	for sizes := search.First(
		known); len(sizes) > 0 && time.Now().Before(end) && ctx.Err() == nil; sizes = search.Next() {
		search = search.After(sizes, r.askSizes(ctx, attempt, sizes, best.RTT))
	}
	return search.Passed
}

// askSizes asks with packets of several sizes, the largest first, and returns the sizes that got
// through.
func (r *round) askSizes(ctx context.Context, attempt int, sizes []int, rtt time.Duration) []int {
	var passed []int
	for i := range mtuCopies {
		for _, size := range sizes {
			if !slices.Contains(passed, size) {
				r.ask(attempt, size-natdiscovery.Headers)
			}
		}
		patience := mtuRepeat
		if i == mtuCopies-1 {
			patience = rtt + mtuPatient
		}
		for a := range r.answersUntil(ctx, patience) {
			size := a.Size + natdiscovery.Headers
			if a.Size == a.size && a.Type != natdiscovery.Malformed && slices.Contains(sizes, size) {
				passed = append(passed, size)
			}
			if slices.Contains(passed, sizes[0]) {
				return passed
			}
		}
	}
	return passed
}
