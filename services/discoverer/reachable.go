package discoverer

import (
	"net/netip"
	"slices"
	"time"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/prefix"
	"subctl/services"
)

// Reach is what is known of the connections of this cluster's gateways to other clusters, by
// cluster ID.
type Reach map[string]reach

// reach is what is known of the connections to a cluster.
type reach struct {
	connected bool
	since     time.Time // connected has been as it is
	// unreachable follows connected, with delays.
	unreachable bool
	// lost is when unreachable was last set, and flaps counts how often it was set soon after the
	// time before.
	lost  time.Time
	flaps int
}

const (
	// downAfter is the time without a connection after which a cluster is unreachable: gateways
	// change their cables, and take over from each other, in about as much. Gateways take a quarter
	// of a second to notice, and kube-proxy up to a second to follow: together less than two
	// seconds.
	downAfter = 500 * time.Millisecond
	// flapTime is the time between two losses of a cluster that makes the second one a flap. After
	// each flap, connections must have lasted twice as long until they count, up to longestDamp:
	// each change of mind writes all slices of the cluster.
	flapTime    = 5 * time.Minute
	longestDamp = time.Minute
)

// next returns what is known now, and the time until that changes without news; 0 for never. While
// no gateway reports, nothing changes.
func (r Reach) next(s role.Snapshot, members []services.Member) (out Reach, again time.Duration) {
	connected, known := connectedClusters(s)
	out = Reach{}
	for _, m := range members {
		is, had := r[m.ID]
		if !known {
			if had {
				out[m.ID] = is
			}
			continue
		}
		up := connected(m.ID)
		if !had {
			is = reach{connected: up, since: s.Now, unreachable: !up}
		}
		var left time.Duration
		out[m.ID], left = is.follow(up, s.Now)
		if left > 0 && (again == 0 || left < again) {
			again = left
		}
	}
	return out, again
}

// follow returns what is known after a look at the connections, and the time until that changes.
func (r reach) follow(connected bool, now time.Time) (out reach, left time.Duration) {
	if connected != r.connected {
		r.connected = connected
		r.since = now
	}
	if connected != r.unreachable {
		return r, 0
	}
	if left = r.delay() - now.Sub(r.since); left > 0 {
		return r, left
	}
	r.unreachable = !connected
	if r.unreachable {
		r.flaps++
		if now.Sub(r.lost) >= flapTime {
			r.flaps = 0
		}
		r.lost = now
	}
	return r, 0
}

// delay is the time for which a cluster must have been connected, or not connected, until that
// counts.
func (r reach) delay() time.Duration {
	switch {
	case !r.unreachable:
		return downAfter
	case r.flaps == 0:
		return 0
	}
	return min(time.Second<<min(r.flaps, 10), longestDamp)
}

// connectedClusters returns a function that reports whether a gateway is connected to a cluster, by
// the recent reports of active gateways. known is false if there is no such report.
func connectedClusters(s role.Snapshot) (connected func(id string) bool, known bool) {
	is := map[string]bool{}
	listed := map[string]bool{}
	omitted := false
	for _, g := range role.List[*submarinerv1.Gateway](s) {
		if g.Status.HAStatus != submarinerv1.HAStatusActive || !s.Reporting(g.Name) {
			continue
		}
		known = true
		omitted = omitted || g.Status.ConnectionsOmitted > 0
		for _, c := range g.Status.Connections {
			id := c.Endpoint.ClusterID
			listed[id] = true
			is[id] = is[id] || c.Status == submarinerv1.Connected
		}
	}
	return func(id string) bool { return is[id] || omitted && !listed[id] }, known
}

// routedNetworks returns for which networks gateways are connected to which cluster, as far as they
// report it: a report does not list all connections of a large clusterset.
func routedNetworks(s role.Snapshot) map[string][]netip.Prefix {
	out := map[string][]netip.Prefix{}
	for _, g := range role.List[*submarinerv1.Gateway](s) {
		if g.Status.HAStatus != submarinerv1.HAStatusActive || !s.Reporting(g.Name) {
			continue
		}
		for _, c := range g.Status.Connections {
			if id := c.Endpoint.ClusterID; c.Status == submarinerv1.Connected {
				out[id] = append(out[id], prefix.Valid(c.Endpoint.Subnets)...)
			}
		}
	}
	for id, networks := range out {
		slices.SortFunc(networks, netip.Prefix.Compare)
		out[id] = slices.Compact(networks)
	}
	return out
}
