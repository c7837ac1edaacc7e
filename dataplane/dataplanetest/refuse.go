package dataplanetest

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"subctl/dataplane"
)

// Limits of the kernel.
const (
	maxDevice = 15 // IFNAMSIZ, less the zero byte
	maxSet    = 31 // IPSET_MAXNAMELEN, less the zero byte
	maxChain  = 28 // XT_EXTENSION_MAXNAMELEN, less the zero byte
	maxVNI    = 1<<24 - 1
	maxPort   = 1<<16 - 1
	minMTU    = 68 // below, a device has no IPv4
)

// refuse returns the error with which the kernel refuses an object, or nil.
func (f *Fake) refuse(o dataplane.Object) error {
	for _, need := range o.Needs() {
		if _, ok := f.state[need]; !ok && !f.foreign(need) {
			return fmt.Errorf("no such object: %v", need)
		}
	}
	switch o := o.(type) {
	case dataplane.Set:
		return refuseSet(o)
	case dataplane.Ruleset:
		return refuseRuleset(o)
	case dataplane.Chain:
		return refuseIf(len(o.Name) > maxChain, "name is too long")
	case dataplane.VXLAN:
		return f.refuseVXLAN(o)
	case dataplane.WireGuard:
		return refuseWireGuard(o)
	case dataplane.WireGuardPeer:
		return refusePeer(o)
	case dataplane.IKEDaemon:
		return refuseIf(o.Port < 1 || o.Port > maxPort, "no such port")
	case dataplane.IPsecInterface:
		return refuseIf(o.Name == "" || len(o.Name) > maxDevice || o.MTU < minMTU, "bad name or MTU")
	case dataplane.Tunnel:
		return refuseIf(!o.Local.IsValid() || o.LocalID == "" || o.RemoteID == "" || o.ReqID == 0,
			"no address, identity or reqid")
	case dataplane.IKERemote:
		return refuseIf(o.Name == "" || len(o.Children) == 0, "no name or no child")
	case dataplane.IPsecBlock:
		return refuseIf(!o.From.IsValid() || o.Port < 1 || o.Port > maxPort, "no such address or port")
	case dataplane.Addr:
		return refuseIf(!o.Prefix.IsValid(), "no such address")
	case dataplane.FDB:
		return errors.Join(refuseMAC(o.MAC), refuseIf(!o.Dst.IsValid(), "no destination"))
	case dataplane.Neigh:
		return errors.Join(refuseMAC(o.MAC), refuseIf(!o.IP.IsValid(), "no address"))
	case dataplane.Nexthop:
		return errors.Join(refuseIf(o.ID == 0, "id 0"), f.refuseVia(o))
	case dataplane.Group:
		return refuseGroup(o)
	case dataplane.Route:
		return refuseIf(o.Dst != o.Dst.Masked() || !o.Dst.IsValid(), "destination has bits beyond its prefix")
	case dataplane.Multipath:
		return refuseIf(o.Dst != o.Dst.Masked() || !o.Dst.IsValid() || len(o.Hops) == 0,
			"destination has bits beyond its prefix, or there is no next hop")
	case dataplane.Detour:
		return refuseIf(o.Dst != o.Dst.Masked() || !o.Dst.IsValid(), "destination has bits beyond its prefix")
	case dataplane.Blackhole:
		return refuseIf(o.Dst != o.Dst.Masked() || !o.Dst.IsValid(), "destination has bits beyond its prefix")
	case dataplane.Throw:
		return refuseIf(o.Dst != o.Dst.Masked() || !o.Dst.IsValid(), "destination has bits beyond its prefix")
	case dataplane.Arrival:
		return refuseIf(o.Table == 0 || len(o.Dev) > maxDevice, "no such table or device")
	case dataplane.Rule:
		return refuseIf(o.Table == 0, "no such table")
	case dataplane.PolicyRule:
		return refuseIf(
			(o.Table == 0) == (o.Action == "") || o.Mark&^o.Mask != 0 || o.Src.Bits() == 0 || o.Dst.Bits() == 0,
			"no such table, action, mark or network")
	case dataplane.MarkRule:
		return refuseIf(o.Table == 0 || o.Mark == 0 || o.Mark&^o.Mask != 0, "no such table or mark")
	}
	return fmt.Errorf("no such kind of object: %T", o)
}

// refuseRuleset refuses rules and elements that lead to no chain, rules that use no set, and
// chains, sets and elements in another order than the kernel returns them.
func refuseRuleset(r dataplane.Ruleset) error {
	names := map[string]bool{}
	for _, c := range r.Chains {
		names[c.Name] = true
	}
	for _, s := range r.Sets {
		names["@"+s.Name] = true
	}
	texts := [][]string{}
	for _, c := range r.Chains {
		for _, rule := range c.Rules {
			texts = append(texts, strings.FieldsFunc(rule.Text, func(c rune) bool { return c == ' ' || c == ',' }))
		}
	}
	for _, s := range r.Sets {
		keys := map[string]bool{}
		for _, e := range s.Elements {
			key, _, _ := strings.Cut(e, " : ")
			keys[key] = true
			texts = append(texts, strings.Fields(e))
		}
		if !slices.IsSorted(s.Elements) || len(keys) != len(s.Elements) {
			return fmt.Errorf("set %s: its elements are not sorted, or one key is there twice", s.Name)
		}
	}
	for _, words := range texts {
		for i, word := range words {
			leads := i > 0 && (words[i-1] == "jump" || words[i-1] == "goto")
			refers := strings.HasPrefix(word, "@") && word != "@th" && word != "@nh" // bytes of a packet
			if (leads || refers) && !names[word] {
				return fmt.Errorf("no such chain or set: %s", word)
			}
		}
	}
	return errors.Join(
		refuseIf(r.Family == "" || r.Table == "" || len(names) != len(r.Chains)+len(r.Sets),
			"no family, no name, or one name twice"),
		refuseIf(
			!slices.IsSortedFunc(r.Chains,
				func(a, b dataplane.RuleChain) int { return strings.Compare(a.Name, b.Name) }),
			"chains are not sorted",
		),
		refuseIf(
			!slices.IsSortedFunc(r.Sets, func(a, b dataplane.RuleSet) int { return strings.Compare(a.Name, b.Name) }),
			"sets are not sorted"),
	)
}

func refuseIf(bad bool, why string) error {
	if bad {
		return errors.New(why)
	}
	return nil
}

// foreign reports whether a device belongs to no owner, such as eth0. Such devices exist.
func (f *Fake) foreign(k dataplane.Key) bool {
	if k.Kind != dataplane.KindLink {
		return false
	}
	for _, o := range dataplane.Owners() {
		if o.OwnsDevice(k.Name) {
			return false
		}
	}
	return true
}

func refuseMAC(mac string) error {
	_, err := net.ParseMAC(mac)
	return err
}

func refuseSet(s dataplane.Set) error {
	if len(s.Name) > maxSet {
		return errors.New("name is too long")
	}
	for _, m := range s.Members {
		if m.Bits() < 1 || m != m.Masked() {
			return fmt.Errorf("bad member %v", m)
		}
	}
	return nil
}

func (f *Fake) refuseVXLAN(v dataplane.VXLAN) error {
	if v.Name == "" || len(v.Name) > maxDevice || v.VNI < 0 || v.VNI > maxVNI || v.MTU < minMTU {
		return errors.New("bad name, VNI or MTU")
	}
	for _, o := range f.state {
		if other, ok := o.(dataplane.VXLAN); ok && other.Name != v.Name && other.VNI == v.VNI && other.Port == v.Port {
			return fmt.Errorf("VNI %d and port %d are taken by %s", v.VNI, v.Port, other.Name)
		}
	}
	return refuseMAC(v.MAC)
}

func refuseWireGuard(w dataplane.WireGuard) error {
	if w.Name == "" || len(w.Name) > maxDevice || w.MTU < minMTU || w.Port < 1 || w.Port > maxPort {
		return errors.New("bad name, MTU or port")
	}
	return errors.Join(refuseIf(w.Private == (dataplane.Secret{}), "no private key"),
		refuseIf(w.Private != w.Private.Clamp(), "the private key would be clamped"))
}

func refusePeer(p dataplane.WireGuardPeer) error {
	for _, n := range p.Allowed {
		if n != n.Masked() {
			return fmt.Errorf("bad network %v", n)
		}
	}
	return errors.Join(refuseIf(p.Preshared == (dataplane.Secret{}), "no preshared key"),
		refuseIf(p.Keepalive < 0 || p.Keepalive > maxPort, "no such keepalive"))
}

// refuseVia refuses a gateway that is not in a network of the device.
func (f *Fake) refuseVia(n dataplane.Nexthop) error {
	if f.foreign(dataplane.Key{Kind: dataplane.KindLink, Name: n.Dev}) {
		return nil
	}
	if !n.Via.IsValid() {
		return nil
	}
	for _, o := range f.state {
		if a, ok := o.(dataplane.Addr); ok && a.Dev == n.Dev && a.Prefix.Contains(n.Via) {
			return nil
		}
	}
	return fmt.Errorf("gateway %v is in no network of %s", n.Via, n.Dev)
}

func refuseGroup(g dataplane.Group) error {
	if g.ID == 0 || len(g.Members) == 0 || g.Idle%(100*time.Millisecond) != 0 {
		return errors.New("no id, no members, or an idle time that is no multiple of 100 ms")
	}
	seen := map[uint32]bool{}
	for _, m := range g.Members {
		if m.Weight < 1 || m.Weight > 256 || seen[m.ID] {
			return fmt.Errorf("member %d: twice, or of weight %d", m.ID, m.Weight)
		}
		seen[m.ID] = true
	}
	return nil
}
