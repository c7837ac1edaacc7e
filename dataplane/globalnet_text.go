package dataplane

import (
	"fmt"
	"strings"
)

// elements returns the elements of the maps as nft has them, each with the name of its map.
func (g Globalnet) elements() (out []string) {
	add := func(name, format string, args ...any) {
		out = append(out, fmt.Sprintf("%s %s { "+format+" }", append([]any{g.Table, name}, args...)...))
	}
	for _, a := range g.Own {
		add(GlobalnetOwn, "%v : %v", a.Global, a.Local)
		add(GlobalnetOwners, "%v : %v", a.Local, a.Global)
	}
	for _, a := range g.Echoes {
		add(GlobalnetEchoes, "%v : %v", a.Global, a.Local)
	}
	for _, s := range g.Services {
		add(GlobalnetServices, "%v . %d . %d : goto %s", s.Addr, s.Proto, s.Port, s.Class())
	}
	for _, b := range g.Backends {
		add(GlobalnetBackends, "%v . %d . %d . %d : %v . %d", b.Addr, b.Proto, b.Port, b.Slot, b.To.Addr(), b.To.Port())
	}
	for _, r := range g.Replies {
		add(GlobalnetReplies, "%v . %d . %d : %v . %d", r.From.Addr(), r.Proto, r.From.Port(), r.As.Addr(), r.As.Port())
	}
	for _, p := range g.Pools {
		add(GlobalnetPools, "%v : goto %s", p.Pod, p.Class())
	}
	for _, s := range g.Sources {
		add(GlobalnetSources, "%v . %d : %v", s.Pod, s.Slot, s.Global)
	}
	for _, s := range g.Shared {
		add(GlobalnetShared, "%d : %v", s.Slot, s.Global)
	}
	return out
}

// String implements Object.
func (g Globalnet) String() string {
	lines := []string{"nft add table ip " + g.Table}
	for _, m := range globalnetTypes {
		lines = append(lines, fmt.Sprintf("nft 'add map ip %s %s { type %s; }'", g.Table, m.name, m.typ))
	}
	for _, name := range GlobalnetChains() {
		line := fmt.Sprintf("nft add chain ip %s %s", g.Table, name)
		if typ, hook, priority := GlobalnetHook(name); hook != "" {
			line = fmt.Sprintf("nft 'add chain ip %s %s { type %s hook %s priority %d; }'", g.Table, name, typ, hook,
				priority)
		}
		lines = append(lines, line)
	}
	for _, e := range g.elements() {
		lines = append(lines, "nft 'add element ip "+e+"'")
	}
	for _, r := range g.Rules() {
		lines = append(lines, fmt.Sprintf("nft 'add rule ip %s %s %v'", g.Table, r.Chain, r))
	}
	return strings.Join(lines, "\n")
}

// change implements changer: the elements that differ, if the rules do not.
func (g Globalnet) change(old Object) string {
	have, ok := old.(Globalnet)
	if !ok || have.Fingerprint() != g.Fingerprint() {
		return ""
	}
	var lines []string
	for _, e := range have.without(g).elements() {
		lines = append(lines, "nft 'delete element ip "+e+"'")
	}
	for _, e := range g.without(have).elements() {
		lines = append(lines, "nft 'add element ip "+e+"'")
	}
	return strings.Join(lines, "\n")
}

// without returns the elements of maps that another table does not have.
func (g Globalnet) without(o Globalnet) Globalnet {
	return Globalnet{
		Table:    g.Table,
		Own:      Without(g.Own, o.Own),
		Echoes:   Without(g.Echoes, o.Echoes),
		Services: Without(g.Services, o.Services),
		Backends: Without(g.Backends, o.Backends),
		Replies:  Without(g.Replies, o.Replies),
		Pools:    Without(g.Pools, o.Pools),
		Sources:  Without(g.Sources, o.Sources),
		Shared:   Without(g.Shared, o.Shared),
	}
}

// Without returns the items of a that are not in b. Both are sorted.
func Without[T interface{ Compare(T) int }](a, b []T) (out []T) {
	for _, m := range a {
		for len(b) > 0 && b[0].Compare(m) < 0 {
			b = b[1:]
		}
		if len(b) == 0 || b[0].Compare(m) != 0 {
			out = append(out, m)
		}
	}
	return out
}
