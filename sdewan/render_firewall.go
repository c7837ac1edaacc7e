package sdewan

import (
	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan/rest"
)

func renderZone(r *batch.FirewallZone, n Networks) (rest.Object, error) {
	s := r.Spec
	devices, err := n.devices("spec.network[%d]", texts(s.Networks()))
	if err != nil {
		return nil, err
	}
	return &rest.Zone{
		Network:          devices,
		Masq:             string(s.Masq),
		MasqSrc:          texts(s.MasqSrc),
		MasqDest:         texts(s.MasqDest),
		MasqAllowInvalid: string(s.MasqAllowInvalid),
		MTUFix:           string(s.MTUFix),
		Input:            string(s.Input),
		Forward:          string(s.Forward),
		Output:           string(s.Output),
		Family:           string(s.Family),
		Subnet:           texts(s.Subnet),
		ExtraSrc:         s.ExtraSrc,
		ExtraDest:        s.ExtraDest,
	}, nil
}

func renderForwarding(r *batch.FirewallForwarding, _ Networks) (rest.Object, error) {
	return &rest.Forwarding{Src: string(r.Spec.Src), Dest: string(r.Spec.Dest), Family: string(r.Spec.Family)}, nil
}

func renderFirewallRule(r *batch.FirewallRule, _ Networks) (rest.Object, error) {
	s := r.Spec
	return &rest.FirewallRule{
		Src:      string(s.Src),
		SrcIP:    string(s.SrcIP),
		SrcMAC:   string(s.SrcMAC),
		SrcPort:  string(s.SrcPort),
		Proto:    string(s.Proto),
		ICMPType: texts(s.ICMPType),
		Dest:     string(s.Dest),
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

func renderSNAT(r *batch.FirewallSNAT, _ Networks) (rest.Object, error) {
	s := r.Spec
	return &rest.Redirect{
		Src:      string(s.Src),
		SrcIP:    string(s.SrcIP),
		SrcDIP:   string(s.SrcDIP),
		SrcMAC:   string(s.SrcMAC),
		SrcPort:  string(s.SrcPort),
		SrcDPort: string(s.SrcDPort),
		Proto:    string(s.Proto),
		Dest:     string(s.Dest),
		DestIP:   string(s.DestIP),
		DestPort: string(s.DestPort),
		Mark:     string(s.Mark),
		Target:   "SNAT",
		Family:   string(s.Family),
	}, nil
}

func renderDNAT(r *batch.FirewallDNAT, _ Networks) (rest.Object, error) {
	s := r.Spec
	return &rest.Redirect{
		Src:      string(s.Src),
		SrcIP:    string(s.SrcIP),
		SrcDIP:   string(s.SrcDIP),
		SrcMAC:   string(s.SrcMAC),
		SrcPort:  string(s.SrcPort),
		SrcDPort: string(s.SrcDPort),
		Proto:    string(s.Proto),
		Dest:     string(s.Dest),
		DestIP:   string(s.DestIP),
		DestPort: string(s.DestPort),
		Mark:     string(s.Mark),
		Target:   "DNAT",
		Family:   string(s.Family),
	}, nil
}

// zones returns the zones that a rule uses: "*" is any zone, and "" none.
func zones(src, dest batch.ZoneName) (out []Use) {
	for _, z := range []struct {
		name  batch.ZoneName
		field string
	}{{src, "spec.src"}, {dest, "spec.dest"}} {
		if z.name != "" && z.name != "*" {
			out = append(out, Use{"FirewallZone", rest.Zones, string(z.name), z.field})
		}
	}
	return out
}

func usesOfForwarding(r *batch.FirewallForwarding) []Use { return zones(r.Spec.Src, r.Spec.Dest) }
func usesOfFirewallRule(r *batch.FirewallRule) []Use     { return zones(r.Spec.Src, r.Spec.Dest) }
func usesOfSNAT(r *batch.FirewallSNAT) []Use             { return zones(r.Spec.Src, r.Spec.Dest) }
func usesOfDNAT(r *batch.FirewallDNAT) []Use             { return zones(r.Spec.Src, r.Spec.Dest) }
