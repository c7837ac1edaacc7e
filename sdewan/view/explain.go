package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"subctl/sdewan"
	"subctl/sdewan/rest"
)

// Explanation is the meaning of a rule; its JSON is a promise.
type Explanation struct {
	Namespace string   `json:"namespace"`
	Kind      string   `json:"kind"`
	Name      string   `json:"name"`
	Purpose   string   `json:"purpose"`
	CNF       string   `json:"cnf"` // the Deployment, "" if there is none
	Pods      []string `json:"pods"`
	InSync    bool     `json:"inSync"`
	State     string   `json:"state"`
	Needs     []string `json:"needs"`  // other rules, and their state
	UsedBy    []string `json:"usedBy"` // rules that need this one
	After     []string `json:"after"`  // rules of its list that come first, in this order
	Matches   string   `json:"matches"`
	Does      string   `json:"does"`
}

// Explain explains a rule.
func (v *View) Explain(r sdewan.Rule) Explanation {
	k, _ := sdewan.KindOf(r)
	s := v.State(r)
	e := Explanation{
		Namespace: r.GetNamespace(), Kind: KindName(r), Name: r.GetName(), Purpose: r.GetLabels()[sdewan.PurposeLabel],
		Pods: append([]string{}, s.Pods...), InSync: s.InSync, State: s.String(), Needs: []string{}, UsedBy: []string{}, After: []string{},
	}
	for _, u := range k.Uses(r) {
		e.Needs = append(e.Needs, fmt.Sprintf("%s (%s): %s", u, u.Field, v.used(r, u)))
	}
	for _, other := range v.Rules {
		ok, _ := sdewan.KindOf(other)
		if !neighbours(r, other) {
			continue
		}
		for _, u := range ok.Uses(other) {
			if u.Collection == k.Collection && u.Name == r.GetName() && u.Kind == KindName(r) {
				e.UsedBy = append(e.UsedBy, KindName(other)+" "+other.GetName())
				break
			}
		}
	}
	cnfs := v.Of(r)
	if len(cnfs) != 1 {
		return e
	}
	e.CNF = cnfs[0].Deployment.Name
	e.After = append(e.After, v.before(r, k)...)
	config, _ := v.Config(cnfs[0])
	if o, ok := config.Get(k.Collection, r.GetName()); ok {
		e.Matches, e.Does = words(o, config)
	} else if err := v.unrendered(k, r, cnfs[0]); err != nil {
		e.Does = "nothing, as far as can be seen here: " + err.Error()
	}
	return e
}

// unrendered returns why no object stands for a rule on a CNF.
func (v *View) unrendered(k sdewan.Kind, r sdewan.Rule, c CNF) error {
	networks, err := sdewan.ParseNetworks(c.Deployment.Spec.Template.Annotations[sdewan.NetworksAnnotation])
	if err != nil {
		return err
	}
	_, err = v.render(k, r, networks)
	return err
}

// String returns the state as people read it.
func (s State) String() string {
	if !s.InSync {
		return fmt.Sprintf("not in sync: %s: %s", s.Reason, s.Message)
	}
	return strings.TrimSpace(fmt.Sprintf("in sync: all pods have version %s since %s", s.Version, s.Since))
}

// neighbours reports whether two rules apply to the same CNF.
func neighbours(a, b sdewan.Rule) bool {
	return a.GetNamespace() == b.GetNamespace() && a.GetLabels()[sdewan.PurposeLabel] == b.GetLabels()[sdewan.PurposeLabel]
}

// used returns the state of a rule that another one needs.
func (v *View) used(r sdewan.Rule, u sdewan.Use) string {
	for _, other := range v.Rules {
		if neighbours(r, other) && KindName(other) == u.Kind && other.GetName() == u.Name {
			if v.State(other).InSync {
				return "in sync"
			}
			return "not in sync"
		}
	}
	return "does not exist"
}

// before returns the rules whose objects come before a rule's in its list on the CNF.
func (v *View) before(r sdewan.Rule, kind sdewan.Kind) (out []string) {
	var list []sdewan.Rule
	for _, other := range v.Rules {
		if k, ok := sdewan.KindOf(other); ok && k.Collection == kind.Collection && neighbours(r, other) {
			list = append(list, other)
		}
	}
	slices.SortStableFunc(list, sdewan.Order)
	for _, other := range list {
		if other.GetUID() == r.GetUID() && other.GetName() == r.GetName() && KindName(other) == KindName(r) {
			break
		}
		out = append(out, KindName(other)+" "+other.GetName())
	}
	return out
}

// words describes which packets an object is about, and what it does with them.
func words(o rest.Object, c rest.Config) (matches, does string) {
	switch o := o.(type) {
	case *rest.Policy:
		return "connections of rules that use it", spread(*o)
	case *rest.Rule:
		does = "takes an uplink by policy " + o.Policy
		if p, ok := c.Get(rest.Policies, o.Policy); ok {
			does += ": " + spread(*p.(*rest.Policy))
		}
		if o.Sticky == "1" {
			does += fmt.Sprintf("; connections of a source stay with one uplink for %s s", cmp.Or(o.Timeout, "600"))
		}
		return packets(cmp.Or(o.Proto, "all"), "", o.SrcIP, o.SrcPort, "", o.DestIP, o.DestPort) + ", unless an earlier rule matches", does
	case *rest.Zone:
		does = fmt.Sprintf("to the CNF: %s; from the CNF: %s; between networks of the zone: %s", policy(o.Input), policy(o.Output), policy(o.Forward))
		if o.Masq == "1" {
			does += "; to it: source addresses become the CNF's"
		}
		return "packets from and to " + cmp.Or(strings.Join(slices.Concat(o.Network, o.Subnet), ", "), "no network"), does
	case *rest.Forwarding:
		return fmt.Sprintf("new connections from %s to %s", zone(o.Src), zone(o.Dest)), "ACCEPT, and their replies"
	case *rest.FirewallRule:
		does = cmp.Or(o.Target, "REJECT")
		if set := cmp.Or(o.SetMark, o.SetXMark); set != "" {
			does += " " + set
		}
		return packets(cmp.Or(o.Proto, "tcpudp"), o.Src, o.SrcIP, o.SrcPort, o.Dest, o.DestIP, o.DestPort), does
	case *rest.Redirect:
		if o.Target == "SNAT" {
			return packets(cmp.Or(o.Proto, "tcpudp"), "", o.SrcIP, o.SrcPort, o.Dest, o.DestIP, o.DestPort), "the source address becomes " + join(o.SrcDIP, o.SrcDPort)
		}
		to := "the CNF itself"
		if o.DestIP != "" {
			to = o.DestIP
		}
		return packets(cmp.Or(o.Proto, "tcpudp"), o.Src, o.SrcIP, o.SrcPort, "", o.SrcDIP, o.SrcDPort), "the destination becomes " + join(to, cmp.Or(o.DestPort, o.SrcDPort)) + ", and the packets are accepted"
	case *rest.Proposal:
		return "IPsec connections that use it", strings.Join(slices.DeleteFunc([]string{o.Encryption, o.Hash, o.DHGroup}, func(s string) bool { return s == "" }), "-")
	case *rest.Remote:
		var list []string
		for _, x := range o.Connections {
			list = append(list, fmt.Sprintf("%s (%s, %s): %s === %s", x.Name, x.Type, x.Mode, cmp.Or(x.LocalSubnet, x.LocalSourceIP, "this CNF"), cmp.Or(x.RemoteSubnet, x.RemoteSourceIP, "the remote")))
		}
		return "IPsec with " + o.Gateway + ", authenticated by " + o.Auth, strings.Join(list, "; ")
	case *rest.NAT:
		return packets(cmp.Or(o.Proto, "all"), "", o.SrcIP, o.SrcPort, "", cmp.Or(o.SrcDIP, "the CNF"), o.SrcDPort), "lead to " + join(o.DestIP, o.DestPort)
	}
	return "", ""
}

// spread describes a policy.
func spread(p rest.Policy) string {
	var list []string
	for _, m := range p.Members {
		list = append(list, fmt.Sprintf("%s (metric %s, weight %s)", m.Interface, cmp.Or(m.Metric, "1"), cmp.Or(m.Weight, "1")))
	}
	return "of the uplinks that are online, those with the lowest metric share the connections by weight: " + strings.Join(list, ", ")
}

// packets describes which packets match.
func packets(proto, src, srcIP, srcPort, dest, destIP, destPort string) string {
	return fmt.Sprintf("%s from %s to %s", proto, end(src, srcIP, srcPort), end(dest, destIP, destPort))
}

func end(z, ip, port string) string {
	out := cmp.Or(ip, "any address")
	if z != "" {
		out += " in " + zone(z)
	}
	if port != "" {
		out += " port " + port
	}
	return out
}

func zone(name string) string {
	if name == "" || name == "*" {
		return "any zone"
	}
	return "zone " + name
}

func policy(p string) string { return cmp.Or(p, "ACCEPT") }

func join(ip, port string) string {
	if port == "" {
		return ip
	}
	return ip + " port " + port
}
