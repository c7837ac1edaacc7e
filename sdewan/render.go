package sdewan

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"

	ipsec "subctl/api/sdewan/ipsec/v1alpha1"
	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan/rest"
)

// texts converts a list without empty texts; an empty list is nil, as CNFs return it.
func texts[T ~string](list []T) []string {
	var out []string
	for _, s := range list {
		if s != "" {
			out = append(out, string(s))
		}
	}
	return out
}

func renderPolicy(r *batch.Mwan3Policy, n Networks) (rest.Object, error) {
	var names []string
	for _, m := range r.Spec.Members {
		names = append(names, string(m.Network))
	}
	devices, err := n.devices("spec.members[%d].network", names)
	if err != nil {
		return nil, err
	}
	p := &rest.Policy{LastResort: r.Spec.LastResort}
	for i, m := range r.Spec.Members {
		p.Members = append(
			p.Members,
			rest.Member{
				Interface:  devices[i],
				Metric:     cmp.Or(string(m.Metric), "1"),
				Weight:     cmp.Or(string(m.Weight), "1"),
				MaxLoss:    string(m.MaxLoss),
				MaxLatency: string(m.MaxLatency),
				MaxJitter:  string(m.MaxJitter),
			},
		)
	}
	return p, nil
}

func renderRule(r *batch.Mwan3Rule, _ Networks) (rest.Object, error) {
	s := r.Spec
	return &rest.Rule{
		Policy: string(
			s.Policy),
		SrcIP:    string(s.SrcIP),
		SrcPort:  string(s.SrcPort),
		DestIP:   string(s.DestIP),
		DestPort: string(s.DestPort),
		Proto:    s.Proto,
		Family:   s.Family,
		Sticky:   string(s.Sticky),
		Timeout:  string(s.Timeout),
	}, nil
}

// usesOfRule leaves out the policies that every CNF has.
func usesOfRule(r *batch.Mwan3Rule) []Use {
	if slices.Contains(rest.Reserved, string(r.Spec.Policy)) {
		return nil
	}
	return []Use{{"Mwan3Policy", rest.Policies, string(r.Spec.Policy), "spec.policy"}}
}

func renderProposal[P proposal](r P, _ Networks) (rest.Object, error) {
	s := proposalSpec(r)
	return &rest.Proposal{Encryption: s.Encryption, Hash: s.Hash, DHGroup: s.DHGroup}, nil
}

// proposal is an IpsecProposal of either group.
type proposal interface {
	*batch.IpsecProposal | *ipsec.IpsecProposal
}

func proposalSpec[P proposal](r P) batch.IpsecProposalSpec {
	switch r := any(r).(type) {
	case *batch.IpsecProposal:
		return r.Spec
	case *ipsec.IpsecProposal:
		return r.Spec
	}
	return batch.IpsecProposalSpec{}
}

// renderService cannot know the address of a Service.
func renderService(*batch.CNFService, Networks) (rest.Object, error) {
	return nil, errors.New("spec.fullname: the address of the Service is needed: see RenderCNFService")
}

// RenderCNFService returns the object that stands for a CNFService whose Service has an address,
// and whose port has a protocol (tcp, udp, sctp): what is sent to the port of the CNF goes to the
// port of the Service.
func RenderCNFService(r *batch.CNFService, service netip.Addr, proto string) rest.Object {
	return &rest.NAT{
		Name: r.Name, Target: "DNAT", Proto: proto, SrcIP: string(r.Spec.CIDR), SrcDPort: string(r.Spec.Port),
		DestIP: service.String(), DestPort: string(r.Spec.DPort),
	}
}
