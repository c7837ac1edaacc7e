package sdewan

import (
	"cmp"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan/rest"
)

// device returns the device of a network, or what names no network, as it is.
func (n Networks) device(name batch.Device) string {
	if d, ok := n[string(name)]; ok {
		return d
	}
	return string(name)
}

func renderRoute(r *batch.CNFRoute, n Networks) (rest.Object, error) {
	s := r.Spec
	return &rest.Route{Dst: string(s.Dst), GW: string(s.GW), Dev: n.device(s.Dev), Table: cmp.Or(s.Table, "default")}, nil
}

func renderRouteRule(r *batch.CNFRouteRule, _ Networks) (rest.Object, error) {
	s := r.Spec
	return &rest.RouteRule{
		Src:    string(s.Src),
		Dst:    string(s.Dst),
		Not:    s.Not,
		Prio:   string(s.Prio),
		FwMark: string(s.FwMark),
		Table:  string(s.Table),
	}, nil
}

func renderNAT(r *batch.CNFNAT, n Networks) (rest.Object, error) {
	s := r.Spec
	return &rest.NAT{
		Src:      n.device(s.Src),
		SrcIP:    string(s.SrcIP),
		SrcDIP:   string(s.SrcDIP),
		SrcPort:  string(s.SrcPort),
		SrcDPort: string(s.SrcDPort),
		Proto:    string(s.Proto),
		Dest:     n.device(s.Dest),
		DestIP:   string(s.DestIP),
		DestPort: string(s.DestPort),
		Target:   s.Target,
		Index:    string(s.Index),
	}, nil
}

func renderNetworkRule(r *batch.NetworkFirewallRule, n Networks) (rest.Object, error) {
	s := r.Spec
	return &rest.FirewallRule{
		Src:      n.device(s.Src),
		SrcIP:    string(s.SrcIP),
		SrcMAC:   string(s.SrcMAC),
		SrcPort:  string(s.SrcPort),
		Proto:    string(s.Proto),
		ICMPType: texts(s.ICMPType),
		Dest:     n.device(s.Dest),
		DestIP:   string(s.DestIP),
		DestPort: string(s.DestPort),
		Mark:     string(s.Mark),
		Target:   s.Target,
		SetMark:  string(s.SetMark),
		SetXMark: string(s.SetXMark),
		Family:   string(s.Family),
		Extra:    s.Extra,
	}, nil
}
