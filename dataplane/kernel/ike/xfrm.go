//go:build linux

package ike

import (
	"errors"
	"fmt"
	"net"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// xfrm is the kernel's IPsec: what charon put there, and what a charon that is gone left.
// Ours have a reqid of a Tunnel and, in tunnel mode, our if_id; in transport mode, which
// has none, the policies are known by the port that they select, and the security
// associations by those policies. Those of others are never touched. With ESP in userspace
// it is empty.
type xfrm struct{ nl *vnl.Handle } // nil if the kernel has no IPsec

// openXFRM opens it for the calling thread's network namespace.
func openXFRM() (xfrm, error) {
	h, err := vnl.NewHandle(unix.NETLINK_XFRM)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return xfrm{}, nil
	}
	if err != nil {
		return xfrm{}, fmt.Errorf("opening netlink socket: %w", err)
	}
	return xfrm{h}, nil
}

func (x xfrm) close() {
	if x.nl != nil {
		x.nl.Close()
	}
}

// policies returns all policies, whoever has them.
func (x xfrm) policies() ([]vnl.XfrmPolicy, error) {
	if x.nl == nil {
		return nil, nil
	}
	out, err := netlink.Whole(func() ([]vnl.XfrmPolicy, error) { return x.nl.XfrmPolicyList(vnl.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("listing XFRM policies: %w", err)
	}
	return out, nil
}

// ourPolicy reports whether a policy is of a Tunnel.
func ourPolicy(p *vnl.XfrmPolicy) bool {
	if len(p.Tmpls) == 0 || !ourReqID(p.Tmpls[0].Reqid) {
		return false
	}
	const port = dataplane.VXLANIPsecPort
	transport := p.Tmpls[0].Mode == vnl.XFRM_MODE_TRANSPORT && p.Proto == unix.IPPROTO_UDP && p.SrcPort == port &&
		p.DstPort == port
	return p.Ifid == dataplane.IPsecIfID || transport
}

func ourReqID(id int) bool {
	kind := uint32(id) >> 24
	return kind == dataplane.IPsecNexthopID || kind == dataplane.VXLANIPsecNexthopID
}

// ours returns the policies that belong to our tunnels, and the security associations of our
// tunnels.
func (x xfrm) ours(policies []vnl.XfrmPolicy) (ps []vnl.XfrmPolicy, sas []vnl.XfrmState, err error) {
	if x.nl == nil {
		return nil, nil, nil
	}
	used := map[int]bool{} // reqids
	for _, p := range policies {
		if ourPolicy(&p) {
			ps = append(ps, p)
			used[p.Tmpls[0].Reqid] = true
		}
	}
	states, err := netlink.Whole(func() ([]vnl.XfrmState, error) { return x.nl.XfrmStateList(vnl.FAMILY_V4) })
	if err != nil {
		return nil, nil, fmt.Errorf("listing XFRM states: %w", err)
	}
	for _, s := range states {
		transport := s.Mode == vnl.XFRM_MODE_TRANSPORT && used[s.Reqid]
		if ourReqID(s.Reqid) && (s.Ifid == dataplane.IPsecIfID || transport) {
			sas = append(sas, s)
		}
	}
	return ps, sas, nil
}

// delState removes a security association. It is no error if there is none.
func (x xfrm) delState(s *vnl.XfrmState) error {
	if x.nl == nil {
		return nil
	}
	return netlink.OrGone(x.nl.XfrmStateDel(s))
}

// delPolicy removes a policy. It is no error if there is none.
func (x xfrm) delPolicy(p *vnl.XfrmPolicy) error {
	if x.nl == nil {
		return nil
	}
	return netlink.OrGone(x.nl.XfrmPolicyDel(p))
}

// blocks returns the IPsecBlocks among some policies.
func blocks(policies []vnl.XfrmPolicy) (out []dataplane.Object) {
	for _, p := range policies {
		if p.Priority == dataplane.IPsecBlockPriority && p.Action == vnl.XFRM_POLICY_BLOCK {
			b := dataplane.IPsecBlock{Port: p.DstPort}
			if ones, bits := p.Src.Mask.Size(); ones == bits { // of one address, as in every plan
				b.From = netlink.Addr(p.Src.IP)
			}
			out = append(out, b)
		}
	}
	return out
}

func (x xfrm) block(b dataplane.IPsecBlock) error {
	if x.nl == nil {
		return nil
	}
	if err := x.nl.XfrmPolicyAdd(blockPolicy(b)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("blocking plain packets from %v to UDP port %d: %w", b.From, b.Port, err)
	}
	return nil
}

func (x xfrm) unblock(b dataplane.IPsecBlock) error {
	if err := x.delPolicy(blockPolicy(b)); err != nil {
		return fmt.Errorf("no longer blocking plain packets from %v to UDP port %d: %w", b.From, b.Port, err)
	}
	return nil
}

func blockPolicy(b dataplane.IPsecBlock) *vnl.XfrmPolicy {
	p := &vnl.XfrmPolicy{
		Dir: vnl.XFRM_DIR_OUT, Proto: vnl.Proto(unix.IPPROTO_UDP), DstPort: b.Port,
		Action: vnl.XFRM_POLICY_BLOCK, Priority: dataplane.IPsecBlockPriority,
	}
	if b.From.IsValid() {
		p.Src = &net.IPNet{IP: b.From.AsSlice(), Mask: net.CIDRMask(b.From.BitLen(), b.From.BitLen())}
	}
	return p
}
