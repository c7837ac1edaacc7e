//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"time"

	"subctl/dataplane"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// xfrm is the kernel's IPsec: what charon put there, and what a charon that was
// killed left. Ours are told by their if_id and reqid; those of others are never
// touched. In userspace ESP there is nothing in it.
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

// ourReqID reports whether a policy or a security association is of a Tunnel.
func ourReqID(id int) bool { return dataplane.GatewayOwner.IDs.Has(uint32(id)) }

// ours returns the policies and security associations of our tunnels.
func (x xfrm) ours() (ps []netlink.XfrmPolicy, sas []netlink.XfrmState, err error) {
	policies, err := whole(func() ([]netlink.XfrmPolicy, error) { return x.XfrmPolicyList(netlink.FAMILY_V4) })
	if err != nil {
		return nil, nil, fmt.Errorf("listing XFRM policies: %w", err)
	}
	for _, p := range policies {
		if len(p.Tmpls) > 0 && ourReqID(p.Tmpls[0].Reqid) {
			ps = append(ps, p)
		}
	}
	states, err := whole(func() ([]netlink.XfrmState, error) { return x.XfrmStateList(netlink.FAMILY_V4) })
	if err != nil {
		return nil, nil, fmt.Errorf("listing XFRM states: %w", err)
	}
	for _, s := range states {
		if ourReqID(s.Reqid) {
			sas = append(sas, s)
		}
	}
	return ps, sas, nil
}

// flush removes all policies and security associations of our tunnels: nobody keeps
// them up any more.
func (x xfrm) flush() error {
	ps, sas, err := x.ours()
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range ps {
		errs = append(errs, orGone(x.XfrmPolicyDel(&p)))
	}
	for _, s := range sas {
		errs = append(errs, orGone(x.XfrmStateDel(&s)))
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
			out = append(out, dataplane.IPsecBlock{Port: p.DstPort})
		}
	}
	return out, nil
}

func (x xfrm) block(b dataplane.IPsecBlock) error {
	if err := x.XfrmPolicyAdd(blockPolicy(b)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("blocking plain packets to UDP port %d: %w", b.Port, err)
	}
	return nil
}

func (x xfrm) unblock(b dataplane.IPsecBlock) error {
	if err := orGone(x.XfrmPolicyDel(blockPolicy(b))); err != nil {
		return fmt.Errorf("no longer blocking plain packets to UDP port %d: %w", b.Port, err)
	}
	return nil
}

func blockPolicy(b dataplane.IPsecBlock) *netlink.XfrmPolicy {
	return &netlink.XfrmPolicy{
		Dir: netlink.XFRM_DIR_OUT, Proto: netlink.Proto(unix.IPPROTO_UDP), DstPort: b.Port,
		Action: netlink.XFRM_POLICY_BLOCK, Priority: dataplane.IPsecBlockPriority,
	}
}
