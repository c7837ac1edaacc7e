package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"subctl/sdewan/rest"
)

// ipsec reads the states of tunnels and of IKE, and the addresses that the ends of tunnels have
// from each other.
func (p *PodStatus) ipsec(status json.RawMessage) {
	var ipsec rest.Tunnels
	if json.Unmarshal(status, &ipsec) != nil {
		return
	}
	counts := ipsec.Count()
	p.TunnelCounts = &counts
	if ipsec.Counts != nil {
		p.Cut = append(p.Cut, "ipsec")
	}
	listed := 0
	for _, t := range ipsec.Details {
		state := t.State()
		p.Tunnels = append(p.Tunnels, t.Name+" "+state)
		if state != "up" && state != "waiting" {
			listed++
			p.Problems = append(p.Problems, fmt.Sprintf("tunnel %s is %s", t.Name, state))
		}
	}
	if more := counts.Connecting + counts.Down - listed; more > 0 {
		p.Problems = append(p.Problems, fmt.Sprintf("tunnels that are connecting or down and not listed: %d", more))
	}
	messages := 0
	for _, r := range ipsec.Remotes {
		p.IKE = append(p.IKE, r.Name+" "+cmp.Or(r.State, "none"))
		for _, ip := range r.Virtual {
			p.VirtualIPs = append(p.VirtualIPs, r.Name+" "+ip)
		}
		for _, ip := range r.Leases {
			p.Leases = append(p.Leases, r.Name+" "+ip)
		}
		// also of an end that waits: it has refused somebody
		if r.Message != "" && !r.Up() && messages < maxIneffective {
			messages++
			p.Problems = append(p.Problems, fmt.Sprintf("tunnels of %.300s: %.500s", r.Name, r.Message))
		}
	}
	if ipsec.Init == "fail" && len(ipsec.Details) == 0 {
		p.Problems = append(p.Problems, "its tunnels are down")
	}
}

// maxNamed is the maximum number of tunnels, remotes or leases that a cell of a table names: for
// more, it has the numbers.
const maxNamed = 8

// TunnelText returns the states of tunnels for people.
func (p PodStatus) TunnelText() string {
	c := p.TunnelCounts
	if c == nil || c.Tunnels() <= maxNamed {
		return strings.Join(p.Tunnels, ", ")
	}
	text := fmt.Sprintf("%d of %d up", c.Up, c.Tunnels())
	for _, s := range []struct {
		n     int
		state string
	}{{c.Connecting, "connecting"}, {c.Waiting, "waiting"}, {c.Down, "down"}} {
		if s.n > 0 {
			text += fmt.Sprintf(", %d %s", s.n, s.state)
		}
	}
	return text
}

// IKEText returns the states of IKE for people.
func (p PodStatus) IKEText() string {
	if c := p.TunnelCounts; c != nil && c.Remotes > maxNamed {
		return fmt.Sprintf("%d of %d ESTABLISHED", c.Established, c.Remotes)
	}
	return strings.Join(p.IKE, ", ")
}

// LeasesText returns for people the addresses that others have from the pod.
func (p PodStatus) LeasesText() string {
	if c := p.TunnelCounts; c != nil && c.Leases > maxNamed {
		return fmt.Sprint(c.Leases)
	}
	return strings.Join(p.Leases, ", ")
}
