package discovery

import (
	"context"
	"net/netip"
	"time"

	"subctl/cable/natdiscovery"
)

// receive reads datagrams, from any sender, until ctx is done.
func (d *Finder) receive(ctx context.Context, conn Datagrams) {
	buf := make([]byte, 1<<16)
	for ctx.Err() == nil {
		n, from, to, err := conn.Receive(buf)
		if err != nil {
			if ctx.Err() == nil {
				d.log.Warn("reading NAT discovery messages", "err", err)
				time.Sleep(readAgain)
			}
			continue
		}
		now := time.Now()
		m, err := natdiscovery.Parse(buf[:n])
		switch {
		case err != nil:
			d.log.Debug("a NAT discovery message is refused", "from", from, "err", err)
		case m.Response != nil:
			d.answered(m, from, now)
		default:
			d.answer(conn, m, n, from, to)
		}
	}
}

// answered passes an answer to the search that asked. An answer to no question, one from
// another address than was asked, and a second answer are dropped.
func (d *Finder) answered(m natdiscovery.Message, from netip.AddrPort, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.asked[m.Response.Number]
	if q == nil || q.to != from {
		return
	}
	delete(d.asked, m.Response.Number)
	select {
	case q.answers <- answer{Response: *m.Response, question: q, authentic: m.Authentic(q.key), rtt: now.Sub(q.sent)}:
	default: // more answers than a search has questions
	}
}

// answer answers a question of size bytes, within the rate, and with no more bytes than the
// question has: a forged sender address must not amplify traffic.
func (d *Finder) answer(conn Datagrams, m natdiscovery.Message, size int, from netip.AddrPort, to netip.Addr) {
	q := *m.Request
	d.mu.Lock()
	self, limiter := d.self(), d.others
	k := d.known[q.Sender.Cable]
	if k != nil && k.peer.Cluster != q.Sender.Cluster {
		k = nil
	}
	if k != nil && natdiscovery.Announced(k.peer.Gateway, from.Addr()) {
		limiter = k.limiter
	}
	if !limiter.Allow() {
		d.mu.Unlock()
		return
	}
	var key natdiscovery.Key // signs the answer only if it signed the question
	if k != nil && q.Receiver == self.Endpoint {
		if m.Authentic(k.key) {
			key = k.key
		}
		k.heard(from, key != natdiscovery.Key{})
	}
	d.mu.Unlock()
	b := natdiscovery.Answer(self, q, from, size).Encode(key)
	if len(b) > size {
		return
	}
	if err := conn.Send(b, to, from); err != nil {
		d.log.Debug("answering a NAT discovery message", "to", from, "err", err)
	}
}

// heard records a question of the gateway. If the question is authentic, the gateway can be
// reached at its source address, at least for as long as a translator keeps the mapping. A
// gateway that was not found before is searched for once more.
func (k *known) heard(from netip.AddrPort, authentic bool) {
	news := authentic && k.learned != from && !natdiscovery.At(k.peer.Gateway, uint16(k.port), from)
	if news {
		k.learned = from
	}
	lost := k.missed || !k.path.Address.IsValid()
	if news && (k.path.InboundOnly || lost) || k.path.Done && lost && time.Since(k.looked) > askFor {
		k.again.Send()
	}
}
