package agent

import (
	"reflect"
	"slices"
	"time"

	"subctl/sdewan/rest"
)

// linger is for how long the CNF drops what is for the networks of a connection that is no longer
// in the configuration: an object that is deleted and created again is away for a second or two,
// while the hosts of the LAN continue to send.
const linger = 10 * time.Second

// maxLeft is the maximum number of connections that are remembered: as many as a configuration has.
const maxLeft = 10_000

// memory holds the connections of the last configuration, and the connections that were removed
// from it in the last few seconds. It has no secrets.
type memory struct {
	last []rest.Remote
	left []leftRemote // in the order of their ends
}

type leftRemote struct {
	rest.Remote
	until time.Time
}

// note compares a configuration with the last one, and returns the connections that have left
// lately. A connection whose networks have changed has left as it was. If the service is stopped,
// nothing is remembered.
func (m *memory) note(c rest.Config, now time.Time, linger time.Duration) (left []rest.Remote) {
	if slices.Contains(c.Stopped, "ipsec") {
		*m = memory{}
		return nil
	}
	var current []rest.Remote
	byName := make(map[string]rest.Remote, len(c.Remotes))
	for _, r := range c.Remotes {
		r = networksOf(r)
		current = append(current, r)
		byName[r.Name] = r
	}
	stays := func(r rest.Remote) bool { return reflect.DeepEqual(byName[r.Name], r) }
	m.left = slices.DeleteFunc(m.left, func(l leftRemote) bool { return !now.Before(l.until) || stays(l.Remote) })
	for _, r := range m.last {
		if !stays(r) {
			m.left = append(m.left, leftRemote{r, now.Add(linger)})
		}
	}
	m.left = m.left[max(0, len(m.left)-maxLeft):]
	m.last = current
	for _, l := range m.left {
		left = append(left, l.Remote)
	}
	return left
}

// next returns the time until the first of the connections that have left is forgotten, at most so
// much.
func (m *memory) next(now time.Time, most time.Duration) time.Duration {
	if len(m.left) == 0 {
		return most
	}
	return max(0, min(most, m.left[0].until.Sub(now)))
}

// networksOf returns a Remote with what tells the packets that it concerns.
func networksOf(r rest.Remote) rest.Remote {
	out := rest.Remote{Name: r.Name, Gateway: r.Gateway}
	for _, c := range r.Connections {
		out.Connections = append(out.Connections, rest.Connection{
			Name:           c.Name,
			Type:           c.Type,
			Mode:           c.Mode,
			LocalSubnet:    c.LocalSubnet,
			LocalNAT:       c.LocalNAT,
			LocalSourceIP:  c.LocalSourceIP,
			RemoteSubnet:   c.RemoteSubnet,
			RemoteSourceIP: c.RemoteSourceIP,
		})
	}
	return out
}
