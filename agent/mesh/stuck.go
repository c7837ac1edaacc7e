package mesh

import (
	"fmt"
	"strings"
	"time"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
)

// stuck describes the change of the cable to a peer, and the likely reason why the new cable
// does not answer; empty if there is no change, or if it has not lasted for long. Number i of the plan is
// the cable that the pair uses, or its first one.
func (m *Mesh) stuck(p Plan, o Outcome, i int) string {
	c := p.Held[i]
	t := p.turn(c)
	if t == nil || o.Now.Sub(t.Since) < submarinerv1.StuckAfter {
		return ""
	}
	next, traffic := p.next(c), "traffic stays with "+c.Driver.Name()
	switch status, _, _ := m.status(p, o, c, p.links[i]); {
	case c.Idle:
		next, traffic = i, "no traffic is sent until it does, as the other end may use another one"
	case c.Silent:
		traffic = c.Driver.Name() + " does not answer either, so there is no traffic"
	case next < 0 && status == submarinerv1.Connected:
		return ""
	case next < 0:
		traffic = "the cable before it could not stay, so there is no traffic"
	}
	if next < 0 {
		next = i
	}
	to := p.Held[next]
	by := ""
	if to.Policy != "" {
		by = fmt.Sprintf(", which cable policy %s specifies,", to.Policy)
	}
	return fmt.Sprintf("the cable to gateway %s of cluster %s should be %s%s since %s, but that cable does not answer: %s. Likely cause: %s",
		c.Host, c.Cluster, to.Driver.Name(), by, t.Since.UTC().Format(time.RFC3339), traffic, m.likelyCause(o.Broken[p.nameOf(next)], to, p.links[next]))
}

// stuckChanges returns the changes of cables that have lasted for too long, and the first cables that
// have not answered for so long, as text.
func (m *Mesh) stuckChanges(p Plan, o Outcome) []string {
	var out []string
	for i, c := range p.Held {
		if _, used := p.Using[c.Name]; c.Idle && used {
			continue
		}
		if text := m.stuck(p, o, i); text != "" {
			out = append(out, text)
		}
	}
	return out
}

// likelyCause returns why a new cable does not answer, as far as it can be told from here.
// broken is the reason why the node does not hold it, if there is one.
func (m *Mesh) likelyCause(broken error, c cable.Cable, l cable.Link) string {
	if broken != nil {
		return "this node could not set it up: " + broken.Error()
	}
	var causes []string
	state, stateful := m.Snapshot.stateOf(l)
	path := fmt.Sprintf("a firewall between %v and %v drops %s", m.Offer.Local.PrivateIP, c.Address, strings.Join(l.Passes, " or "))
	switch {
	case stateful && state.Up:
		causes = append(causes, "the gateways have agreed on keys, but packets do not pass: "+path)
	case stateful && state.Message != "":
		causes = append(causes, state.Message, path)
	default:
		causes = append(causes, path)
	}
	causes = append(causes, fmt.Sprintf("cluster %s does not use %s, because it does not have the policy or could not set up the cable (subctl show connections there)", c.Cluster, c.Driver.Name()))
	if mtu := c.Peer.MTU; mtu != 0 && mtu < m.Offer.Local.MTU {
		causes = append(causes, fmt.Sprintf("packets are lost because the path carries at most %d bytes, less than this node's MTU of %d", mtu, m.Offer.Local.MTU))
	}
	return strings.Join(causes, "; or ")
}
