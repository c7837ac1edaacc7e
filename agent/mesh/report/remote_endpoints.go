package report

import (
	"cmp"
	"slices"
	"strings"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/words"
)

// This file has what route agents report of the paths from their nodes to the gateways of
// other clusters: RouteAgent.status.remoteEndpoints, as upstream does.

// The limits of these reports. Every agent of a cluster watches the RouteAgents, so what one
// of them reports costs as often as the cluster has nodes.
const (
	maxRemote     = 32  // endpoints in a report; unconnected endpoints come first
	maxRemoteNets = 8   // networks of an endpoint in a report, and addresses
	maxRemoteNet  = 64  // bytes of one of these
	maxRemoteName = 253 // bytes of any other text of an endpoint in a report
	maxRemoteText = 400 // bytes of a message in a report
)

// RemoteEndpoints returns the state of the path to each remote gateway, up to maxRemote of them,
// and the number of the others.
func RemoteEndpoints(p mesh.Plan, o role.Outcome) (out []submarinerv1.RemoteEndpoint, omitted int) {
	m := p.Mesh
	out = []submarinerv1.RemoteEndpoint{}
	if m == nil || m.Membership.Leaving() {
		return out, 0
	}
	for _, c := range m.Cables.Wanted {
		r := submarinerv1.RemoteEndpoint{
			Status:        submarinerv1.ConnectionNone,
			StatusMessage: mesh.Unprobed(m.Membership, m.Offer.Local.PodIP, c.HealthIP),
			Spec:          m.Cables.Endpoints[c.Name],
		}
		if h, asked := o.Health[c.Name]; r.StatusMessage == "" && asked {
			r.Status = h.Status
			r.StatusMessage = h.Message
		} else if r.StatusMessage == "" {
			r.Status = submarinerv1.Connecting
			r.StatusMessage = waitingForPing
		}
		r.Spec.Backend = c.Driver.Name()
		out = append(out, r)
	}
	for _, w := range m.Cables.Pending {
		r := submarinerv1.RemoteEndpoint{
			Status:        submarinerv1.Connecting,
			StatusMessage: words.Clip(w.Err.Error(), maxRemoteText),
			Spec:          w.Spec,
		}
		r.Spec.Backend = "" // not decided
		out = append(out, r)
	}
	for _, refused := range m.Cables.Refused {
		out = append(
			out,
			submarinerv1.RemoteEndpoint{
				Status:        submarinerv1.ConnectionError,
				StatusMessage: words.Clip("refused: "+refused.Err.Error(), maxRemoteText),
				Spec:          refused.Spec,
			},
		)
	}
	down := func(r submarinerv1.RemoteEndpoint) int {
		if r.Status == submarinerv1.ConnectionError || r.Status == submarinerv1.Connecting {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(out, func(a, b submarinerv1.RemoteEndpoint) int {
		return cmp.Or(down(a)-down(b), strings.Compare(a.Spec.CableName, b.Spec.CableName))
	})
	omitted = max(0, len(out)-maxRemote)
	out = out[:len(out)-omitted]
	for i := range out {
		out[i].Spec = clippedEndpoint(out[i].Spec)
	}
	return out, omitted
}

// clippedEndpoint reduces what another cluster announces of its endpoint to what a RouteAgent
// repeats. Schemas bound texts in characters, of up to four bytes.
func clippedEndpoint(s submarinerv1.EndpointSpec) submarinerv1.EndpointSpec {
	s = boundedEndpoint(s)
	s.BackendConfig = nil // a tool that needs it finds it in the Endpoint
	for _, list := range []*[]string{&s.Subnets, &s.AllocatedIPs} {
		*list = slices.Clone((*list)[:min(len(*list), maxRemoteNets)])
		for i := range *list {
			(*list)[i] = words.Clip((*list)[i], maxRemoteNet)
		}
	}
	for _, text := range []*string{
		&s.ClusterID,
		&s.CableName,
		&s.Hostname,
		&s.HealthCheckIP,
		&s.PrivateIP,
		&s.PublicIP,
		&s.Backend,
	} {
		*text = words.Clip(*text, maxRemoteName)
	}
	return s
}
