package dataplane

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// AntispoofRule is a rule of Antispoof. It drops and counts the packets that match, unless another
// field is set.
type AntispoofRule struct {
	Chain    string
	Matches  []Match
	Accept   bool
	Return   bool       // to the chain that jumped
	Jump     string     // a chain
	Source   netip.Addr // what the source is changed to; the zero Addr leaves it
	Remember bool       // the device on which the packet arrived, in AntispoofSetWays
	Known    int        // bits of the network of the source inside the packet that is remembered, in AntispoofSetKnown
	Mark     bool       // the priority of the packet becomes what AntispoofSetPeers has for its source
	Sender   bool       // the priority of the packet becomes its source, as in memory
	Over     int        // only the packets of a sender beyond so many in a second; 0 for all
	Carried  bool       // the sender for Over is the priority of the packet
}

// String returns the rule in the notation of nft.
func (r AntispoofRule) String() string {
	verdict := "counter drop"
	switch {
	case r.Jump != "":
		verdict = "jump " + r.Jump
	case r.Accept:
		verdict = "accept"
	case r.Return:
		verdict = "return"
	case r.Known != 0:
		verdict = fmt.Sprintf("add @%s { %s }", AntispoofSetKnown, known(r.Known))
	case r.Mark:
		verdict = "meta priority set ip saddr map @" + AntispoofSetPeers
	case r.Sender:
		verdict = "meta priority set @nh,96,32"
	case r.Remember:
		verdict = fmt.Sprintf("add @%s { ip saddr . iif }", AntispoofSetWays)
	}
	if r.Over != 0 {
		sender := "ip saddr"
		if r.Carried {
			sender = "meta priority"
		}
		verdict = fmt.Sprintf("update @%s { %s limit rate over %d/second burst %d packets } %s", AntispoofSetEchoes,
			sender, r.Over, r.Over, verdict)
	}
	if r.Source.IsValid() {
		verdict = fmt.Sprintf("ip saddr set %v %s", r.Source, verdict)
	}
	var b strings.Builder
	for _, m := range r.Matches {
		b.WriteString(m.String() + " ")
	}
	return b.String() + verdict
}

// few is the number of networks that are compared one by one: each comparison costs a tenth of a
// lookup in a set of networks.
const few = 4

// Rules returns the rules, in order. All packets of the node pass the chains with hooks, so these
// have few matches, and those for most packets come first.
func (a Antispoof) Rules() []AntispoofRule {
	var r antispoofRules
	a.echoRules(&r)
	a.isolationRules(&r)
	a.errorRules(&r)
	a.cableRules(&r)
	a.arrivedRules(&r)
	a.unforwardedRules(&r)
	a.transitRules(&r)
	a.closedRules(&r)
	a.pongRules(&r)
	a.foreignRules(&r)
	a.countingRules(&r)
	return r
}

// antispoofRules are the rules so far.
type antispoofRules []AntispoofRule

func (r *antispoofRules) drop(chain string, ms ...Match) {
	*r = append(*r, AntispoofRule{Chain: chain, Matches: ms})
}

func (r *antispoofRules) accept(chain string, ms ...Match) {
	*r = append(*r, AntispoofRule{Chain: chain, Matches: ms, Accept: true})
}

func (r *antispoofRules) back(chain string, ms ...Match) {
	*r = append(*r, AntispoofRule{Chain: chain, Matches: ms, Return: true})
}

func (r *antispoofRules) jump(to, chain string, ms ...Match) {
	*r = append(*r, AntispoofRule{Chain: chain, Matches: ms, Jump: to})
}

// has reports whether a rule jumps to a chain.
func (r *antispoofRules) has(chain string) bool {
	return slices.ContainsFunc(*r, func(rule AntispoofRule) bool { return rule.Jump == chain })
}

func (r *antispoofRules) remember(chain string, ms ...Match) {
	*r = append(*r, AntispoofRule{Chain: chain, Matches: ms, Remember: true})
}

// cableRules are about the packets of VXLAN that arrive on Ports: the device on which they arrive,
// and the source inside. arrivedRules are about the rest of what they contain. The own echoes of
// this node that each sender sends back are limited.
func (a Antispoof) cableRules(r *antispoofRules) {
	if len(a.Ports) == 0 {
		return
	}
	var echoes []AntispoofRule
	for _, e := range a.Echoes {
		if !e.Own.IsValid() || a.checksInside() {
			continue // or arrivedRules limit them
		}
		ms := []Match{{InnerFrom: e.Own}}
		if len(a.Ends) > 0 { // only senders that are known: there is room for so many
			ms = append(ms, Match{SAddrIn: AntispoofSetEnds})
		}
		echoes = append(echoes,
			AntispoofRule{Chain: AntispoofVXLAN, Matches: ms, Over: EchoRate, Jump: AntispoofSource})
	}
	to := AntispoofWay
	if len(a.Inner) > 0 || len(echoes) > 0 {
		to = AntispoofVXLAN
	}
	for _, p := range a.Ports {
		r.jump(to, AntispoofInput, Match{DPort: p})
	}
	if len(a.Inner) > 0 {
		r.jump(AntispoofSource, AntispoofVXLAN, Match{NotIPv4: true})
		*r = append(*r, AntispoofRule{Chain: AntispoofVXLAN, Sender: true})
	}
	for _, bits := range a.innerBits() {
		if bits < 32 { // single addresses are few
			r.accept(AntispoofVXLAN, Match{KnownBits: bits})
		}
	}
	*r = append(*r, echoes...)
	for _, bits := range a.innerBits() {
		if bits == 32 {
			r.jump(AntispoofWay, AntispoofVXLAN, Match{InnerBits: bits})
			continue
		}
		from := Match{InnerBits: bits}
		r.drop(AntispoofVXLAN, from, Match{WrongWay: true})
		*r = append(*r, AntispoofRule{Chain: AntispoofVXLAN, Matches: []Match{from}, Known: bits})
		r.accept(AntispoofVXLAN, from) // whether it was remembered or not
	}
	switch {
	case len(a.Inner) > 0:
		r.jump(AntispoofSource, AntispoofVXLAN)
	case len(echoes) > 0:
		r.jump(AntispoofWay, AntispoofVXLAN)
	}
	r.accept(AntispoofWay, Match{KnownWay: true})
	r.drop(AntispoofWay, Match{WrongWay: true})
	var senders []Match
	if len(a.Ends) > 0 {
		senders = append(senders, Match{SAddrIn: AntispoofSetEnds})
	}
	r.remember(AntispoofWay, senders...)
	r.accept(AntispoofWay) // whether it was remembered or not
}

// unforwardedRules drop packets to the networks of Unforwarded.
func (a Antispoof) unforwardedRules(r *antispoofRules) {
	if len(a.Unforwarded) == 0 {
		return
	}
	r.jump(AntispoofUnforwarded, AntispoofForward, Match{DAddr: around(a.Unforwarded)})
	a.returnedRules(r, AntispoofUnforwarded, func(dev string) []Match { return []Match{{IIF: dev}, {OIF: dev}} })
	for _, n := range a.Unforwarded {
		r.drop(AntispoofUnforwarded, Match{DAddr: n})
	}
}

// transitRules are about packets that the node forwards from one end of a cable to another.
func (a Antispoof) transitRules(r *antispoofRules) {
	if len(a.Ends) == 0 || len(a.Transit) == 0 {
		return
	}
	r.jump(AntispoofPorts, AntispoofForward, Match{UDP: true})
	for _, p := range a.Transit {
		r.jump(AntispoofTransit, AntispoofPorts, Match{DPort: p}, Match{DAddrIn: AntispoofSetEnds})
	}
	r.drop(AntispoofTransit, Match{SAddrNotIn: AntispoofSetEnds})
	r.drop(AntispoofTransit, Match{WrongWay: true})
}

// closedRules close the ports of Closed to other clusters. These are also ports from which the node
// may connect to others (net.ipv4.ip_local_port_range): the answers arrive. No packet opens a
// connection as an answer to one that was before.
func (a Antispoof) closedRules(r *antispoofRules) {
	if a.Closed.Max == 0 {
		return
	}
	r.jump(AntispoofClosed, AntispoofInput, Match{TCPPorts: a.Closed})
	r.back(AntispoofClosed, Match{Reply: true}, Match{OpensNot: true})
	if len(a.Unforwarded) > 0 {
		r.drop(AntispoofClosed, Match{SAddr: around(a.Unforwarded)})
	}
	for _, m := range a.fromRemote() {
		r.drop(AntispoofClosed, m)
	}
	for _, d := range a.ClosedOn {
		r.drop(AntispoofClosed, Match{IIF: d})
	}
}

// innerBits returns the numbers of bits of the networks in Inner, sorted: pods, whose packets are
// the most, are in wide networks.
func (a Antispoof) innerBits() []int {
	nets := make([]netip.Prefix, len(a.Inner))
	for i, s := range a.Inner {
		nets[i] = s.Net
	}
	return masks(nets)
}

// masks returns the numbers of bits of networks, each once, sorted.
func masks(nets []netip.Prefix) (out []int) {
	var has [33]bool
	for _, n := range nets {
		has[max(0, n.Bits())] = true
	}
	for bits, has := range has {
		if has {
			out = append(out, bits)
		}
	}
	return out
}

// widest returns the first few of Own: those of most packets, and then the widest first.
func (a Antispoof) widest() []netip.Prefix {
	out := a.usuallyFirst(a.Own)
	return out[:min(len(out), few)]
}

// usuallyFirst returns networks in another order: those of most packets, and then the widest first.
func (a Antispoof) usuallyFirst(nets []netip.Prefix) []netip.Prefix {
	rare := func(p netip.Prefix) int {
		if slices.Contains(a.Usually, p) {
			return 0
		}
		return 1
	}
	return slices.SortedStableFunc(slices.Values(nets), func(p, q netip.Prefix) int {
		return cmp.Or(cmp.Compare(rare(p), rare(q)), cmp.Compare(p.Bits(), q.Bits()))
	})
}

// around returns the smallest network that contains all networks.
func around(nets []netip.Prefix) netip.Prefix {
	out := nets[0]
	for slices.ContainsFunc(nets, func(n netip.Prefix) bool {
		return n.Bits() < out.Bits() || !out.Contains(n.Addr())
	}) {
		out = netip.PrefixFrom(out.Addr(), out.Bits()-1).Masked()
	}
	return out
}
