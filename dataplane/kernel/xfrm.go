//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"net"
	"time"

	"subctl/dataplane"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// xfrm is the kernel's IPsec: what charon put there, and what a charon that was
// killed left. Ours have a reqid of a Tunnel and, in tunnel mode, our if_id; in transport
// mode, which has none, the policies are told by the port that they select, and the
// security associations by those policies. Those of others are never touched. In
// userspace ESP there is nothing in it.
type xfrm struct{ *netlink.Handle }

// withXFRM opens it for the calling thread's network namespace. A kernel without IPsec
// holds nothing.
func withXFRM(f func(xfrm) error) error {
	h, err := netlink.NewHandle(unix.NETLINK_XFRM)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening netlink socket: %w", err)
	}
	defer h.Close()
	return f(xfrm{h})
}

// ourPolicy reports whether a policy is of a Tunnel.
func ourPolicy(p *netlink.XfrmPolicy) bool {
	if len(p.Tmpls) == 0 || !ourReqID(p.Tmpls[0].Reqid) {
		return false
	}
	const port = dataplane.VXLANIPsecPort
	transport := p.Tmpls[0].Mode == netlink.XFRM_MODE_TRANSPORT && p.Proto == unix.IPPROTO_UDP && p.SrcPort == port && p.DstPort == port
	return p.Ifid == dataplane.IPsecIfID || transport
}

func ourReqID(id int) bool { return dataplane.GatewayOwner.IDs.Has(uint32(id)) }

// ours returns the policies and security associations of our tunnels.
func (x xfrm) ours() (ps []netlink.XfrmPolicy, sas []netlink.XfrmState, err error) {
	policies, err := whole(func() ([]netlink.XfrmPolicy, error) { return x.XfrmPolicyList(netlink.FAMILY_V4) })
	if err != nil {
		return nil, nil, fmt.Errorf("listing XFRM policies: %w", err)
	}
	used := map[int]bool{} // reqids
	for _, p := range policies {
		if ourPolicy(&p) {
			ps = append(ps, p)
			used[p.Tmpls[0].Reqid] = true
		}
	}
	states, err := whole(func() ([]netlink.XfrmState, error) { return x.XfrmStateList(netlink.FAMILY_V4) })
	if err != nil {
		return nil, nil, fmt.Errorf("listing XFRM states: %w", err)
	}
	for _, s := range states {
		transport := s.Mode == netlink.XFRM_MODE_TRANSPORT && used[s.Reqid]
		if ourReqID(s.Reqid) && (s.Ifid == dataplane.IPsecIfID || transport) {
			sas = append(sas, s)
		}
	}
	return ps, sas, nil
}

// flush removes all policies and security associations of our tunnels: nobody keeps
// them up any more. The policies go last: by them the others are told, and without keys
// they let nothing through.
func (x xfrm) flush() error {
	ps, sas, err := x.ours()
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range sas {
		errs = append(errs, orGone(x.XfrmStateDel(&s)))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, p := range ps {
		errs = append(errs, orGone(x.XfrmPolicyDel(&p)))
	}
	return errors.Join(errs...)
}

// flushStates removes those security associations of ours that are older than a time.
func (x xfrm) flushStates(before time.Time) error {
	_, sas, err := x.ours()
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range sas {
		if int64(s.Statistics.AddTime) < before.Unix() {
			errs = append(errs, orGone(x.XfrmStateDel(&s)))
		}
	}
	return errors.Join(errs...)
}

// blocks returns the IPsecBlocks there are.
func (x xfrm) blocks() (out []dataplane.Object, err error) {
	policies, err := whole(func() ([]netlink.XfrmPolicy, error) { return x.XfrmPolicyList(netlink.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("listing XFRM policies: %w", err)
	}
	for _, p := range policies {
		if p.Priority == dataplane.IPsecBlockPriority && p.Action == netlink.XFRM_POLICY_BLOCK {
			b := dataplane.IPsecBlock{Port: p.DstPort}
			if ones, bits := p.Src.Mask.Size(); ones == bits { // of one address, as in every plan
				b.From = addr(p.Src.IP)
			}
			out = append(out, b)
		}
	}
	return out, nil
}

func (x xfrm) block(b dataplane.IPsecBlock) error {
	if err := x.XfrmPolicyAdd(blockPolicy(b)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("blocking plain packets from %v to UDP port %d: %w", b.From, b.Port, err)
	}
	return nil
}

func (x xfrm) unblock(b dataplane.IPsecBlock) error {
	if err := orGone(x.XfrmPolicyDel(blockPolicy(b))); err != nil {
		return fmt.Errorf("no longer blocking plain packets from %v to UDP port %d: %w", b.From, b.Port, err)
	}
	return nil
}

func blockPolicy(b dataplane.IPsecBlock) *netlink.XfrmPolicy {
	p := &netlink.XfrmPolicy{
		Dir: netlink.XFRM_DIR_OUT, Proto: netlink.Proto(unix.IPPROTO_UDP), DstPort: b.Port,
		Action: netlink.XFRM_POLICY_BLOCK, Priority: dataplane.IPsecBlockPriority,
	}
	if b.From.IsValid() {
		p.Src = &net.IPNet{IP: b.From.AsSlice(), Mask: net.CIDRMask(b.From.BitLen(), b.From.BitLen())}
	}
	return p
}
