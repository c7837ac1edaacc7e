package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// dnsAgain is the time after which a name is looked up again: shorter than the time in which
	// the addresses of most names may change, and long for a resolver.
	dnsAgain   = 30 * time.Second
	dnsTimeout = 5 * time.Second
	// dnsForget is the time after which a name that nobody has asked for is forgotten.
	dnsForget = 10 * time.Minute
	// dnsForgetEvery is how often such names are looked for.
	dnsForgetEvery = time.Minute
	// dnsAtOnce bounds lookups at the same time. A lookup begins within dnsWait, or not at all.
	dnsAtOnce = 16
	dnsWait   = 2 * dnsTimeout
	// dnsPatience is for how long the rules of a CNF wait for its names. What is found later is
	// used dnsSoon after that, and more and more seldom: names that nobody answers for may be many.
	dnsPatience = 500 * time.Millisecond
	dnsSoon     = 2 * time.Second
)

// lookup is the result of the last lookup of a name.
type lookup struct {
	address netip.Addr // the last one that was found
	err     error
	at      time.Time
}

// queued is a name whose lookup waits for a slot, until a time.
type queued struct {
	name  string
	last  time.Time // when it was looked up last; zero if it was not
	until time.Time
}

// insert adds a name to those that wait in a namespace, behind those that were looked up earlier,
// or never. So each name has its turn, however many others nobody answers for.
func insert(waiting []queued, q queued) []queued {
	i, _ := slices.BinarySearchFunc(waiting, q.last,
		func(w queued, last time.Time) int { return cmp.Or(w.last.Compare(last), -1) })
	return slices.Insert(waiting, i, q)
}

// lookup begins the lookup of a name for a namespace, unless one is running or the result of the
// last one is new. It returns what is closed when the lookup ends; nil if there is none.
func (n *resolver) lookup(ctx context.Context, key types.NamespacedName) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	was, ok := n.found[key.Name]
	if ok && n.o.now().Sub(was.at) < dnsAgain {
		return nil
	}
	ended := n.running[key]
	if ended == nil {
		ended = make(chan struct{})
		n.running[key] = ended
		waiting, starting := n.waiting[key.Namespace]
		n.waiting[key.Namespace] = insert(waiting, queued{key.Name, was.at, time.Now().Add(dnsWait)})
		if !starting {
			go n.start(context.WithoutCancel(ctx), key.Namespace)
		}
	}
	return ended
}

// start starts the lookups that wait in a namespace, as there are slots, until none waits. So a
// name that waits is an entry in a list, and no goroutine.
func (n *resolver) start(ctx context.Context, namespace string) {
	for {
		n.mu.Lock()
		waiting := n.waiting[namespace]
		if len(waiting) == 0 {
			delete(n.waiting, namespace)
			n.mu.Unlock()
			return
		}
		next := waiting[0]
		n.waiting[namespace] = waiting[1:]
		n.mu.Unlock()
		key := types.NamespacedName{Namespace: namespace, Name: next.name}
		until, cancel := context.WithDeadline(ctx, next.until)
		err := n.slots.Take(until, namespace)
		cancel()
		if err != nil {
			n.end(key)
			continue
		}
		go func() {
			defer n.slots.Give(namespace)
			defer n.end(key)
			n.find(ctx, key.Name)
		}()
	}
}

// end tells those who wait for a lookup that it has ended.
func (n *resolver) end(key types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.running[key])
	delete(n.running, key)
}

// find looks up a name. If the name has several addresses, it takes the lowest one, so that it
// changes as rarely as possible.
func (n *resolver) find(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, dnsTimeout)
	defer cancel()
	found, err := n.o.Resolve(ctx, name)
	n.mu.Lock()
	defer n.mu.Unlock()
	now := lookup{address: n.found[name].address, err: err, at: n.o.now()}
	found = slices.DeleteFunc(found, func(a netip.Addr) bool {
		a = a.Unmap()
		return !a.Is4() || !a.IsGlobalUnicast()
	})
	slices.SortFunc(found, func(a, b netip.Addr) int { return a.Unmap().Compare(b.Unmap()) })
	switch {
	case err != nil:
		now.err = fmt.Errorf("spec.fullname: looking up %s: %w", name, err)
	case len(found) == 0:
		now.err = fmt.Errorf("spec.fullname: %s has no IPv4 address to which a CNF can lead", name)
		now.address = netip.Addr{}
	default:
		now.address = found[0].Unmap()
	}
	n.found[name] = now
	if now.at.Sub(n.forgot) > dnsForgetEvery {
		n.forgot = now.at
		maps.DeleteFunc(n.found, func(_ string, l lookup) bool { return now.at.Sub(l.at) > dnsForget })
	}
}

func (l lookup) result() (netip.Addr, error) {
	if l.address.IsValid() {
		return l.address, nil
	}
	if l.err == nil {
		return l.address, errors.New("spec.fullname: the name was not looked up yet")
	}
	return l.address, l.err
}
