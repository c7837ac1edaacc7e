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
	"context"
	"errors"
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
	KindSet: "set", KindChain: "chain", KindSources: "sources", KindDaemon: "daemon", KindLink: "link", KindAddr: "address", KindPeer: "peer", KindTunnel: "tunnel",
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
	for _, o := range other.Sorted() {
		if err := s.Add(o); err != nil {
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

// Op is one step of a plan: put New (in place of Old, if there is one), or
// remove Old.
type Op struct{ Old, New Object }

// String is "+ command" for an object that is put, "- command" for one removed.
func (o Op) String() string {
	if o.New == nil {
		return "- " + o.Old.String()
	}
	return "+ " + o.New.String()
}

// Diff returns the steps from have to want: additions first, in creation order,
// then removals in the opposite order, so that no step pulls away what another
// still stands on.
func Diff(have, want State) []Op {
	left := survivors(have, want)
	var puts, dels State
	for k, w := range want {
		if h, ok := left[k]; !ok || !h.Equal(w) {
			if puts == nil {
				puts = State{}
			}
			puts[k] = w
		}
	}
	for k, h := range left {
		if _, keep := want[k]; !keep {
			if dels == nil {
				dels = State{}
			}
			dels[k] = h
		}
	}
	ops := make([]Op, 0, len(puts)+len(dels))
	for _, o := range puts.Sorted() {
		ops = append(ops, Op{Old: have[o.Key()], New: o})
	}
	gone := dels.Sorted()
	slices.Reverse(gone)
	for _, o := range gone {
		ops = append(ops, Op{Old: o})
	}
	return ops
}

// survivors returns what is left of have once every device or daemon that cannot
// be altered in place has been made again: all that stands on the old one goes
// along.
func survivors(have, want State) State {
	remade := map[Key]bool{}
	for k, w := range want {
		if k.Kind == KindLink || k.Kind == KindDaemon {
			if old, ok := have[k]; ok && !old.Equal(w) && !inPlace(old, w) {
				remade[k] = true
			}
		}
	}
	if len(remade) == 0 {
		return have
	}
	left := maps.Clone(have)
	for k := range remade {
		delete(left, k)
	}
	for _, o := range have.Sorted() { // needs point backwards, so one pass is enough
		for _, k := range o.Needs() {
			_, had := have[k]
			if _, has := left[k]; had && !has {
				delete(left, o.Key())
			}
		}
	}
	return left
}

// Target is somewhere a State can be applied: a kernel, or a fake of one.
type Target interface {
	// Observe returns the objects we own, and no others.
	Observe(context.Context) (State, error)
	// Apply takes one step.
	Apply(context.Context, Op) error
}

// ErrDrift means the target would not settle on what was asked of it.
var ErrDrift = errors.New("dataplane did not converge")

// maxPasses bounds Sync. One pass is the rule; the others mend what somebody
// else, or the kernel, undid meanwhile.
const maxPasses = 3

// Sync makes t hold want, and returns the steps it took. It looks again after
// every pass, so success means "seen", not "asked for"; and a step that failed
// is no error if the next look shows it was not needed. Every step is tried,
// and what failed in the last pass is joined into the error.
func Sync(ctx context.Context, t Target, want State) (done []Op, err error) {
	for range maxPasses {
		have, lookErr := t.Observe(ctx)
		if lookErr != nil {
			return done, fmt.Errorf("observing dataplane: %w", lookErr)
		}
		ops := Diff(have, want)
		if len(ops) == 0 {
			return done, nil
		}
		var errs []error
		for _, op := range ops {
			if err := ctx.Err(); err != nil {
				return done, err
			}
			if err := t.Apply(ctx, op); err != nil {
				errs = append(errs, fmt.Errorf("%v: %w", op, err))
				continue
			}
			done = append(done, op)
		}
		err = errors.Join(errs...)
	}
	have, lookErr := t.Observe(ctx)
	if lookErr != nil {
		return done, fmt.Errorf("observing dataplane: %w", lookErr)
	}
	if left := Diff(have, want); len(left) > 0 {
		return done, errors.Join(ErrDrift, err, fmt.Errorf("still to do: %v", left[0]))
	}
	return done, nil
}
