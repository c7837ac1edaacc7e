// Package dataplane describes, as plain data, what a node's kernel should hold, and
// computes the steps that lead there.
//
// A plan is a State: a set of Objects, each printing as the command a person
// would type. Diff compares two States. Sync makes a Target (a kernel, or a fake
// one) hold a State and reads the Target again: success means observed, not
// requested. The empty State is a clean node, so an uninstall syncs the empty State.
//
// The package never touches a kernel: dataplane/kernel does. It holds no policy either:
// packages cable and agent decide what to plan.
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
// way round, so a rule never points at a route that does not exist yet.
type Kind uint8

// The kinds, in the order in which objects are created.
const (
	KindSet     Kind = iota // ipsets; in no plan, but of versions before
	KindRuleset             // nftables tables, among them those that drop forged packets: before the chains
	KindChain               // iptables chains
	KindDaemon              // programs that devices and tunnels depend on
	KindRemains             // what a daemon left that is gone; in no plan
	KindArrival             // policy rules for packets that arrive on a device: before it carries any
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
	KindSet:     "set",
	KindChain:   "chain",
	KindRuleset: "ruleset",
	KindRemains: "remains",
	KindDaemon:  "daemon",
	KindArrival: "arrival rule",
	KindLink:    "link",
	KindAddr:    "address",
	KindPeer:    "peer",
	KindTunnel:  "tunnel",
	KindNeigh:   "neighbour",
	KindNexthop: "nexthop",
	KindGroup:   "nexthop-group",
	KindRoute:   "route",
	KindRule:    "rule",
}

// String returns the name of the kind, as shown to people.
func (k Kind) String() string {
	if int(k) >= len(kindNames) {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return kindNames[k]
}

// Key identifies an object, whatever its settings.
type Key struct {
	Kind Kind
	Name string
}

// Object is one thing that we own in the kernel. Implementations are plain values
// without pointers, maps or functions.
type Object interface {
	Key() Key
	// Needs returns the keys of the objects that this object depends on: when one of
	// them is removed, the kernel removes this object, too.
	Needs() []Key
	// Equal reports whether the other object has the same key and the same settings.
	Equal(Object) bool
	// String returns the commands that a person would type, one per line. It never
	// contains a secret.
	String() string
}

// State is a set of objects. The empty State is a kernel without any object of ours.
type State map[Key]Object

// Of returns a State of objs. Two different objects with one key are an error.
func Of(objs ...Object) (State, error) {
	s := make(State, len(objs))
	for _, o := range objs {
		s[o.Key()] = o
	}
	if len(s) == len(objs) {
		return s, nil
	}
	clear(s) // some have the same key, which Add checks
	return s, s.Add(objs...)
}

// joiner is an Object that may serve several plans.
type joiner interface {
	// join returns an object that serves both plans, or false if there is none.
	join(Object) (Object, bool)
}

// joined returns an object that serves two plans for one object, or false if there is none.
func joined(a, b Object) (Object, bool) {
	if j, ok := a.(joiner); ok {
		return j.join(b)
	}
	return nil, false
}

// Add adds objs to s. It refuses a second, different object under a key, unless one
// object can serve both.
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

// String returns the commands that produce the state, in order.
func (s State) String() string {
	var b strings.Builder
	for _, o := range s.Sorted() {
		fmt.Fprintln(&b, o)
	}
	return b.String()
}
