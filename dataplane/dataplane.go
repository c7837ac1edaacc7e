// Package dataplane says, as plain data, what a node's kernel should hold, and
// works out what has to change to get there.
//
// A plan is a State: a set of Objects, each printing as the command a person
// would type. Diff compares two States; Sync makes a Target (a kernel, or a fake
// of one) hold a State and looks again, so that success means "seen", not "asked
// for". The empty State is a clean node: uninstalling is syncing it.
//
// The package never touches a kernel: the hands are in dataplane/kernel. It holds
// no policy either: what to plan is the business of cable and agent.
package dataplane

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kind names a sort of kernel object. Kinds are declared in dependency order:
// objects are created from the first kind to the last and removed the other
// way round, so a rule never points at a route that is not there yet.
type Kind uint8

// The kinds, in the order in which objects are created.
const (
	KindSet     Kind = iota // ipsets, which chains match on
	KindChain               // iptables chains
	KindSources             // nftables tables that keep source addresses
	KindDaemon              // programs that devices and tunnels depend on
	KindRemains             // what a daemon left that is gone; in no plan
	KindLink                // network devices
	KindAddr                // addresses on devices
	KindPeer                // peers of WireGuard devices
	KindTunnel              // IPsec tunnels
	KindNeigh               // ARP and FDB entries
	KindNexthop             // single next hops
	KindGroup               // next hop groups
	KindRoute               // routes, in our own tables
	KindRule                // policy rules: these divert traffic, so they come last
)

var kindNames = [...]string{
	KindSet: "set", KindChain: "chain", KindSources: "sources", KindRemains: "remains", KindDaemon: "daemon", KindLink: "link", KindAddr: "address", KindPeer: "peer", KindTunnel: "tunnel",
	KindNeigh: "neighbour", KindNexthop: "nexthop", KindGroup: "nexthop-group", KindRoute: "route", KindRule: "rule",
}

// String is what a kind is called where plans are shown.
func (k Kind) String() string {
	if int(k) >= len(kindNames) {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return kindNames[k]
}

// Key is what makes two objects the same thing, whatever their settings.
type Key struct {
	Kind Kind
	Name string
}

// Object is one thing we own in the kernel. Implementations are plain values:
// no pointers, maps or functions.
type Object interface {
	Key() Key
	// Needs lists the objects this one stands on: if one of them goes, the kernel
	// takes this one along.
	Needs() []Key
	// Equal says whether the other object, of the same key, is set up alike.
	Equal(Object) bool
	// String is what a person would type, one command a line. Never a secret.
	String() string
}

// State is a set of objects. The empty State is a kernel we have left clean.
type State map[Key]Object

// Of makes a State of objs. Two objects with one key are a planning error.
func Of(objs ...Object) (State, error) {
	s := make(State, len(objs))
	return s, s.Add(objs...)
}

// joiner is an Object that several plans may have a part in.
type joiner interface {
	// join returns what does for both; false if nothing does.
	join(Object) (Object, bool)
}

// joined returns what does for both of two plans for one object; false if nothing does.
func joined(a, b Object) (Object, bool) {
	if j, ok := a.(joiner); ok {
		return j.join(b)
	}
	return nil, false
}

// Add puts objs in s. It refuses a second, different object under a key, unless there
// is one that does for both.
func (s State) Add(objs ...Object) error {
	for _, o := range objs {
		k := o.Key()
		if old, ok := s[k]; ok && !old.Equal(o) {
			both, ok := joined(old, o)
			if !ok {
				return fmt.Errorf("two plans for one object:\n\t%v\n\t%v", old, o)
			}
			o = both
		}
		s[k] = o
	}
	return nil
}

// Merge adds all objects of other to s.
func (s State) Merge(other State) error {
	for k, o := range other {
		if _, both := s[k]; !both {
			s[k] = o
		} else if err := s.Add(o); err != nil {
			return err
		}
	}
	return nil
}

// Sorted returns the objects in creation order.
func (s State) Sorted() []Object {
	keys := slices.SortedFunc(maps.Keys(s), func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	out := make([]Object, len(keys))
	for i, k := range keys {
		out[i] = s[k]
	}
	return out
}

// String returns the commands that make the state, in order.
func (s State) String() string {
	var b strings.Builder
	for _, o := range s.Sorted() {
		fmt.Fprintln(&b, o)
	}
	return b.String()
}
