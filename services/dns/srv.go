package dns

import (
	"strings"

	"github.com/miekg/dns"
)

// ports adds SRV records of the ports that are selected, if they are asked for, and reports whether
// there are any. Ports that differ in name or protocol only have one record.
func (a *answer) ports(s *service, selected func(port) bool) bool {
	if a.question.Qtype != dns.TypeSRV {
		return s.has(selected)
	}
	added := map[target]bool{}
	if !s.spec.headless {
		for _, p := range s.spec.ports {
			if selected(p) {
				a.srv(added, target{s.name, p.number}, nil)
			}
		}
		for _, address := range s.addresses[:min(len(s.addresses), a.most)] {
			if len(added) > 0 {
				a.msg.Extra = append(a.msg.Extra, a.address(s.name, address))
			}
		}
		return len(added) > 0
	}
	start := a.index.choose(max(1, len(s.members)))
	for i := 0; i < len(s.members) && len(added) < a.most; i++ {
		m := s.members[(start+i)%len(s.members)]
		name := m.name() + "." + m.of.cluster + "." + s.name
		if len(name) > maxName {
			continue // nobody can ask for it
		}
		for _, p := range m.of.ports {
			if selected(p) {
				a.srv(added, target{name, p.number}, a.address(name, m.address))
			}
		}
	}
	return s.has(selected)
}

// maxName is the length of the longest domain name, with the dot at its end.
const maxName = 254

// target is where an SRV record points to.
type target struct {
	name string
	port uint16
}

// srv adds an SRV record that is not there yet, and the address of its target to the additional
// ones.
func (a *answer) srv(added map[target]bool, t target, address dns.RR) {
	if added[t] {
		return
	}
	added[t] = true
	a.add(&dns.SRV{Hdr: a.header(a.question.Name, dns.TypeSRV), Weight: 100, Port: t.port, Target: t.name})
	if address != nil {
		a.msg.Extra = append(a.msg.Extra, address)
	}
}

// has reports whether the Service has a port that is selected.
func (s *service) has(selected func(port) bool) bool {
	if !s.spec.headless {
		for _, p := range s.spec.ports {
			if selected(p) {
				return true
			}
		}
		return false
	}
	for _, m := range s.members {
		for _, p := range m.of.ports {
			if selected(p) {
				return true
			}
		}
	}
	return false
}

// dashes makes addresses labels.
var dashes = strings.NewReplacer(".", "-", ":", "-")

// name returns the first label of the endpoint's name.
func (e *endpoint) name() string {
	if e.hostname != "" {
		return e.hostname
	}
	return dashes.Replace(e.address.String())
}

// isNamed reports whether a label is the first one of the endpoint's name.
func (e *endpoint) isNamed(label string) bool {
	if e.hostname != "" || !strings.Contains(label, "-") {
		return e.hostname == label
	}
	return e.name() == label
}
