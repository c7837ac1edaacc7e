package report

import (
	"cmp"
	"strings"
	"time"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// The reasons why the gateway of a connection is no member of the group of its cluster begin with
// these words, or why it is one with restrictions.
const (
	memberDown    = "down since "
	memberWaits   = "no answer yet"
	memberSilent  = "it has stopped answering"
	memberStandby = "this gateway is a standby"
	memberLast    = "down, but no other gateway answers"
	memberBroken  = "its cable cannot be set up"
)

// member reports whether packets to a cluster may take the cable, and the reason if they may not,
// or if only some do. old is the connection as it was reported before; nil if it was not.
func (r cableResult) member(old *submarinerv1.Connection) (is bool, reason string) {
	c := r.cable
	is = r.plan.GroupMembers[r.link.Hop]
	switch {
	case r.broken != nil:
		return false, memberBroken
	case is && c.Down:
		return true, memberLast
	case is && r.plan.Mesh.Snapshot.Standing.Standby():
		return true, memberStandby // only packets of this node's own pods take it
	case is:
		return true, c.Drain.String() // or drained, but nobody else is in service
	case c.Silent:
		return false, memberSilent
	case c.Idle, c.Down && !r.plan.Mesh.Snapshot.Health.Down(c):
		return false, memberWaits
	case c.Down && old != nil && strings.HasPrefix(old.MemberReason, memberDown):
		return false, old.MemberReason
	case c.Down:
		return false, memberDown + r.outcome.Now.UTC().Format(time.RFC3339)
	}
	return false, cmp.Or(c.Drain.String(), memberWaits)
}

// reportedConnections returns the connections in the last report of this gateway, by the names of
// their cables.
func reportedConnections(s role.Snapshot) map[string]*submarinerv1.Connection {
	out := map[string]*submarinerv1.Connection{}
	if g := role.Find[*submarinerv1.Gateway](s, s.Node); g != nil {
		for i := range g.Status.Connections {
			out[g.Status.Connections[i].Endpoint.CableName] = &g.Status.Connections[i]
		}
	}
	return out
}
