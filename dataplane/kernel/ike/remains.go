//go:build linux

package ike

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/kernel/link"
	"subctl/dataplane/kernel/netlink"
	"subctl/dataplane/kernel/strongswan"

	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// remains are the changes that an IKE daemon of ours has left on the node after it ended. The
// files of the daemon disappear with its pod; its changes of the node stay.
type remains struct{ *IPsec }

// sweepAfter is the time for which the keys of a killed daemon may be used, if some tunnel
// does not come back and so no new keys take their place.
const sweepAfter = time.Minute

func (remains) Kinds() []dataplane.Kind { return []dataplane.Kind{dataplane.KindRemains} }

func (s remains) List() ([]dataplane.Object, error) {
	if !s.owned {
		return nil, nil
	}
	have, err := s.look()
	if err != nil {
		return nil, err
	}
	if have.pid == 0 {
		return s.all()
	}
	out, err := s.replaced(have)
	if err != nil || have.conns == nil {
		return out, err
	}
	left, _, err := s.idleStandIns(have.conns)
	for _, ip := range left {
		out = append(out, dataplane.StandInAddr{IP: ip})
	}
	return out, err
}

// all returns the remains of a daemon that has no successor.
func (s remains) all() (out []dataplane.Object, err error) {
	rules, err := charonRules(s.nl)
	if err != nil {
		return nil, err
	}
	if s.charon.HasFiles() || len(rules) > 0 {
		out = append(out, dataplane.IKERemains{})
	}
	policies, err := s.xfrm.policies()
	if err != nil {
		return nil, err
	}
	ps, sas, err := s.xfrm.ours(policies)
	for _, p := range ps {
		out = append(out, policyObject(p))
	}
	for _, sa := range sas {
		out = append(out, saObject(sa))
	}
	return out, err
}

// replaced returns the remains of a daemon whose successor runs: they carry the traffic
// until each tunnel has new keys. When a security association was made, the kernel tells
// in seconds.
func (s remains) replaced(have *view) (out []dataplane.Object, err error) {
	ps, sas, err := s.xfrm.ours(have.policies)
	if err != nil {
		return nil, err
	}
	for _, sa := range sas {
		if int64(sa.Statistics.AddTime) < have.started.Unix() {
			out = append(out, saObject(sa))
		}
	}
	if len(out) == 0 || have.conns == nil {
		return nil, nil
	}
	now, err := s.charon.SAs()
	if err != nil {
		return nil, nil // the daemon has just ended: the next look shows that
	}
	complete := true
	used := map[int]bool{}
	for name, conn := range have.conns {
		complete = complete && strongswan.Current(now[name], conn.Child)
		for _, sa := range now[name] {
			for _, child := range sa.Children {
				used[int(child.ReqID)] = true
			}
		}
	}
	if !complete {
		if time.Since(have.started) < sweepAfter {
			return nil, nil
		}
		return out, nil
	}
	for _, p := range ps { // of tunnels that are not planned any more
		if !used[p.Tmpls[0].Reqid] {
			out = append(out, policyObject(p))
		}
	}
	return out, nil
}

// Put puts nothing: no plan holds remains.
func (remains) Put(_, want dataplane.Object) error {
	return fmt.Errorf("adding %v: it is what a daemon leaves", want)
}

func (s remains) Delete(old dataplane.Object) (err error) {
	switch o := old.(type) {
	case dataplane.IKERemains:
		err = s.stop()
	case dataplane.StandInAddr:
		return s.sweepStandInAddrs()
	case dataplane.IPsecSA:
		err = s.xfrm.delState(&vnl.XfrmState{
			Src:   o.Src.AsSlice(),
			Dst:   o.Dst.AsSlice(),
			Proto: vnl.XFRM_PROTO_ESP,
			Spi:   int(o.SPI),
		})
	case dataplane.IPsecPolicy:
		p := &vnl.XfrmPolicy{
			Src:     ipNet(o.Src),
			Dst:     ipNet(o.Dst),
			SrcPort: o.Port,
			DstPort: o.Port,
			Ifid:    int(o.IfID),
			Index:   o.Index,
		}
		if o.Port != 0 {
			p.Proto = unix.IPPROTO_UDP
		}
		for _, dir := range []vnl.Dir{vnl.XFRM_DIR_IN, vnl.XFRM_DIR_OUT, vnl.XFRM_DIR_FWD} {
			if direction(dir) == o.Dir {
				p.Dir = dir
			}
		}
		err = s.xfrm.delPolicy(p)
	}
	if err != nil {
		return fmt.Errorf("removing what an IKE daemon left: %w", err)
	}
	return nil
}

func saObject(s vnl.XfrmState) dataplane.Object {
	return dataplane.IPsecSA{
		Src:   netlink.Addr(s.Src),
		Dst:   netlink.Addr(s.Dst),
		SPI:   uint32(s.Spi),
		ReqID: uint32(s.Reqid),
	}
}

func policyObject(p vnl.XfrmPolicy) dataplane.Object {
	return dataplane.IPsecPolicy{
		Src: prefixOf(
			p.Src),
		Dst:   prefixOf(p.Dst),
		Port:  p.DstPort,
		Dir:   direction(p.Dir),
		IfID:  uint32(p.Ifid),
		Index: p.Index,
		ReqID: uint32(p.Tmpls[0].Reqid),
	}
}

// direction returns the name that ip-xfrm(8) has for the direction of a policy.
func direction(d vnl.Dir) string {
	switch d {
	case vnl.XFRM_DIR_IN:
		return "in"
	case vnl.XFRM_DIR_OUT:
		return "out"
	}
	return "fwd"
}

// prefixOf returns a network of a policy, which is nil for all addresses.
func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(netlink.Addr(n.IP), bits)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// sweepStandIns removes the devices that stood in for the device of a daemon that is gone,
// and its rule. Its routes went with the device. The rule goes last: by the rule the
// devices are known to be there.
func (s *IPsec) sweepStandIns() error {
	if err := link.RemoveStandIns(s.nl); err != nil {
		return err
	}
	rules, err := charonRules(s.nl)
	for _, r := range rules {
		err = errors.Join(err, netlink.OrGone(s.nl.RuleDel(&r)))
	}
	return err
}

// charonRules returns the rules that a daemon with ESP in userspace adds when it starts,
// and removes when it ends.
func charonRules(h *vnl.Handle) ([]vnl.Rule, error) {
	rules, err := netlink.Whole(func() ([]vnl.Rule, error) {
		return h.RuleListFiltered(vnl.FAMILY_ALL, &vnl.Rule{Table: dataplane.CharonTable}, vnl.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("listing rules: %w", err)
	}
	return slices.DeleteFunc(rules, func(r vnl.Rule) bool { return r.Priority != dataplane.CharonPriority }), nil
}
