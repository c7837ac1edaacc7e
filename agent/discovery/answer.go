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
// another address than was asked, and a second answer are dropped. So is an answer without the
// key of the pair, if there is a key: the question then still waits for the true answer.
func (d *Finder) answered(m natdiscovery.Message, from netip.AddrPort, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.asked[m.Response.Number]
	if q == nil || q.to != from {
		return
	}
	if q.key != (natdiscovery.Key{}) && !m.Authentic(q.key) {
		q.forged = true
		return
	}
	delete(d.asked, m.Response.Number)
	if q.key != (natdiscovery.Key{}) && m.Response.Cookie != 0 {
		q.of.fresh.theirs = m.Response.Cookie
	}
	select {
	case q.answers <- answer{Response: *m.Response, question: q, authentic: m.Authentic(q.key), rtt: now.Sub(q.sent)}:
	default: // more answers than a search has questions
	}
}

// answer answers a question of size bytes, within the rate, and with no more bytes than the
// question has: a forged sender address must not amplify traffic. The rate of a gateway is only
// used up by questions that are signed with the key of its pair, if there is one, so a flood of
// forged questions does not keep it from being answered.
func (d *Finder) answer(conn Datagrams, m natdiscovery.Message, size int, from netip.AddrPort, to netip.Addr) {
	q := *m.Request
	d.mu.Lock()
	self := d.ownIdentity()
	k := d.sender(q.Sender)
	var key natdiscovery.Key
	if k != nil && q.Receiver == self.Endpoint {
		key = k.key
	}
	d.mu.Unlock()
	if !m.Authentic(key) { // which is expensive
		key = natdiscovery.Key{} // signs the answer only if it signed the question
	}
	d.mu.Lock()
	limiter := d.others
	if k != nil &&
		(key != natdiscovery.Key{} ||
			k.key == natdiscovery.Key{} && natdiscovery.Announced(k.peer.Gateway, from.Addr())) {
		limiter = k.limiter
	}
	if !limiter.Allow() {
		d.mu.Unlock()
		return
	}
	a := natdiscovery.Answer(self, q, from, size)
	if k != nil && q.Receiver == self.Endpoint {
		if key != (natdiscovery.Key{}) {
			a.Cookie = k.fresh.cookie()
		}
		if k.peer.Name == q.Sender.Cable && (key != natdiscovery.Key{} || k.key == natdiscovery.Key{}) {
			k.recordQuestion(from, key != natdiscovery.Key{} && k.fresh.accept(q))
		}
	}
	d.mu.Unlock()
	b := a.Encode(key)
	if len(b) > size {
		return
	}
	if err := conn.Send(b, to, from); err != nil {
		d.log.Debug("answering a NAT discovery message", "to", from, "err", err)
	}
}

// sender returns the gateway that a question says it is from or, if that is not known yet, another
// one of its cluster, which has the same key; nil if the cluster is not known.
func (d *Finder) sender(e natdiscovery.Endpoint) *known {
	if k := d.known[e.Cable]; k != nil && k.peer.Cluster == e.Cluster {
		return k
	}
	return d.known[d.anyOf[e.Cluster]]
}

// recordQuestion records a question of the gateway. If the question is authentic, the gateway can
// be reached at its source address, at least for as long as a translator keeps the mapping. A
// gateway that was not found before is searched for once more.
func (k *known) recordQuestion(from netip.AddrPort, authentic bool) {
	news := authentic && k.learned != from && !natdiscovery.At(k.peer.Gateway, uint16(k.port), from)
	if news {
		k.learned = from
	}
	lost := k.missed > 0 || !k.path.Address.IsValid()
	if news && (k.path.InboundOnly || lost) || k.path.Done && lost && time.Since(k.looked) > askFor {
		k.again.Send()
	}
}
