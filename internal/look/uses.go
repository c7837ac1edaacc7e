package look

import (
	"cmp"
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/policy/catalog"
)

// ReadUses reads what the gateways of a cluster report of their connections: the rows of
// subctl show connections. There are none on a broker that is not a member.
func ReadUses(ctx context.Context, c client.Reader, clock *Clock) ([]catalog.Use, error) {
	var s Site
	if err := readSubmariner(ctx, c, &s); err != nil || !s.Joined() {
		return nil, err
	}
	if err := ReadGateways(ctx, c, &s); err != nil {
		return nil, err
	}
	s.Now = clock.Now()
	return s.uses(), nil
}

func (s Site) uses() []catalog.Use {
	var out []catalog.Use
	for _, gw := range s.Current() {
		old := Stale(gw, s.Now)
		for _, c := range gw.Status.Connections {
			status, message := ConnectionState(c)
			u := catalog.Use{
				Cluster:       s.Name,
				Gateway:       gw.Name,
				RemoteCluster: c.Endpoint.ClusterID,
				RemoteGateway: c.Endpoint.Hostname,
				CableDriver:   catalog.CableDriver(c),
				Policy:        c.Policy,
				Rule:          c.Rule,
				NAT:           c.UsingNAT,
				Status:        status,
				Message:       message,
				DriverReason:  c.DriverReason,
			}
			if c.UsingIP == "" && c.Status != submarinerv1.Connected {
				u.CableDriver = "" // refused, or waiting: the driver is not in use
			}
			switch {
			case Ahead(gw, s.Now):
				u.Message = cmp.Or(u.Message, old)
			case old != "":
				u.Status = string(submarinerv1.ConnectionError)
				u.Message = old
			}
			out = append(out, u)
		}
	}
	return out
}
