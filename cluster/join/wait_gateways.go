package join

import (
	"fmt"
	"slices"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable/drivers"
	"subctl/policy/catalog"
)

// incomplete returns what the gateways that this join makes still lack, one line each: a report,
// and, where they are active, a connection to every member. gateways are those with a recent
// report.
func (j *Operation) incomplete(gateways []submarinerv1.Gateway, skipped []string) (out []string) {
	for _, node := range j.Plan.Gateways {
		if slices.Contains(skipped, node) {
			continue
		}
		at := slices.IndexFunc(gateways, func(g submarinerv1.Gateway) bool { return g.Name == node })
		switch {
		case at < 0:
			out = append(out, fmt.Sprintf("gateway %s has not reported yet", node))
		case active(gateways[at]):
			for _, member := range j.Plan.Present {
				if why := unfinished(gateways, gateways[at], member); why != "" {
					out = append(out, fmt.Sprintf("gateway %s: %s", node, why))
				}
			}
		}
	}
	return out
}

// unfinished returns why an active gateway is not connected to a member; empty if it is, or if its
// driver connects only some gateways of a cluster, and another one is connected.
func unfinished(gateways []submarinerv1.Gateway, g submarinerv1.Gateway, member string) string {
	why := connectedBy(g, member)
	if why == "" {
		return ""
	}
	for _, c := range g.Status.Connections {
		d := drivers.Find(catalog.CableDriver(c))
		limited := c.Endpoint.ClusterID == member && d != nil && d.Properties().MaxGateways > 0
		if limited && slices.ContainsFunc(gateways, func(other submarinerv1.Gateway) bool {
			return active(other) && connectedBy(other, member) == ""
		}) {
			return ""
		}
	}
	return why
}

// connectedBy returns why a gateway is not connected to a member; empty if it has a connection to
// one of the member's gateways.
func connectedBy(g submarinerv1.Gateway, member string) string {
	why := fmt.Sprintf("no connection to cluster %q yet", member)
	for _, c := range g.Status.Connections {
		switch {
		case c.Endpoint.ClusterID != member:
		case c.Status == submarinerv1.Connected:
			return ""
		default:
			why = fmt.Sprintf("cluster %q: %s", member, c.Status)
		}
	}
	return why
}
