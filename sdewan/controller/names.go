package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
	"subctl/sdewan/rest"
)

// A CNFService makes a port of the CNF lead to a port of a Service: a NAT object, with the address of the Service. The address of a Service
// comes from the API server, and follows it. The address of any other name comes from DNS, and is looked up again from time to time.

const (
	// dnsAgain is the time after which a name is looked up again: shorter than the time in which the addresses of most names may change,
	// and long for a resolver.
	dnsAgain   = 30 * time.Second
	dnsTimeout = 5 * time.Second
	// dnsForget is the time after which a name that nobody has asked for is forgotten.
	dnsForget = 10 * time.Minute
	// dnsAtOnce bounds lookups at the same time. A lookup begins within dnsWait, or not at all.
	dnsAtOnce = 16
	dnsWait   = 2 * dnsTimeout
	// dnsPatience is for how long the rules of a CNF wait for its names; what is found later is used dnsSoon after that.
	dnsPatience = 500 * time.Millisecond
	dnsSoon     = 2 * time.Second
)

// names resolves the names of CNFServices.
type names struct {
	client client.Reader // from the cache, which has indexServices
	o      Options
	slots  *shares

	mu      sync.Mutex
	known   map[string]lookup
	running map[types.NamespacedName]chan struct{} // is closed when the lookup of a name for a namespace ends
}

// lookup is the result of the last lookup of a name.
type lookup struct {
	address netip.Addr // the last one that was found
	err     error
	at      time.Time
}

func newNames(c client.Reader, o Options) *names {
	return &names{client: c, o: o, slots: newShares(dnsAtOnce), known: map[string]lookup{}, running: map[types.NamespacedName]chan struct{}{}}
}

// target is the destination of a CNFService.
type target struct {
	address netip.Addr
	proto   string
	err     error
}

// same reports whether an object with the one target is the same as with the other, or missing with both.
func (t target) same(o target) bool {
	return t.address == o.address && t.proto == o.proto && (t.err == nil) == (o.err == nil)
}

// services has the targets of the CNFServices of a CNF, by UID.
type services struct {
	targets map[types.UID]target
	dns     bool // some are to be looked up again
	late    bool // some lookups have not ended
}

// of resolves the names of all CNFServices among rules.
func (n *names) of(ctx context.Context, rules []rule) services {
	s := services{targets: map[types.UID]target{}}
	ctx, cancel := context.WithTimeout(ctx, dnsPatience)
	defer cancel()
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, r := range rules {
		x, ok := r.Rule.(*batch.CNFService)
		if !ok || r.deleting() {
			continue
		}
		name, ours := sdewan.ServiceOf(x, n.o.ClusterDomain)
		group.Go(func() {
			var t target
			dns := !ours
			if ours {
				t = n.service(ctx, x.Namespace, name, string(x.Spec.DPort), &dns)
			} else {
				t.proto = "tcp"
				t.address, t.err = n.lookup(ctx, x.Namespace, x.Spec.FullName)
			}
			mu.Lock()
			defer mu.Unlock()
			s.targets[x.UID] = t
			s.dns = s.dns || dns
		})
	}
	group.Wait()
	s.late = s.dns && ctx.Err() != nil
	return s
}

// service returns the address of a Service, and the protocol of its port, for a CNF of a namespace.
func (n *names) service(ctx context.Context, namespace string, name types.NamespacedName, port string, dns *bool) target {
	var s corev1.Service
	err := n.client.Get(ctx, name, &s)
	switch {
	case apierrors.IsNotFound(err):
		return target{err: fmt.Errorf("spec.fullname: there is no Service %s: create it, or correct the name", name)}
	case err != nil:
		return target{err: fmt.Errorf("spec.fullname: reading Service %s: %w", name, err)}
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		*dns = true
		t := target{proto: "tcp"}
		t.address, t.err = n.lookup(ctx, namespace, s.Spec.ExternalName)
		return t
	}
	var t target
	t.address, t.proto, t.err = sdewan.ServiceAddress(&s, port)
	return t
}

// lookup returns the address of a name. If it cannot be looked up any more, or not before ctx is done, the last address stays. A lookup goes on without
// its caller: the next one uses what it finds.
func (n *names) lookup(ctx context.Context, namespace, name string) (netip.Addr, error) {
	n.mu.Lock()
	was, ok := n.known[name]
	if ok && n.o.now().Sub(was.at) < dnsAgain {
		n.mu.Unlock()
		return was.result()
	}
	key := types.NamespacedName{Namespace: namespace, Name: name}
	ended := n.running[key]
	if ended == nil {
		ended = make(chan struct{})
		n.running[key] = ended
		go n.find(context.WithoutCancel(ctx), key, ended)
	}
	n.mu.Unlock()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known[name].result()
}

// find looks up a name. If the name has several addresses, it takes the lowest one, so that it changes as rarely as possible.
func (n *names) find(ctx context.Context, key types.NamespacedName, ended chan struct{}) {
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.running, key)
		close(ended)
	}()
	ctx, cancel := context.WithTimeout(ctx, dnsWait)
	defer cancel()
	if n.slots.take(ctx, key.Namespace) != nil {
		return
	}
	defer n.slots.give(key.Namespace)
	name := key.Name
	ctx, cancel = context.WithTimeout(ctx, dnsTimeout)
	defer cancel()
	found, err := n.o.Resolve(ctx, name)
	n.mu.Lock()
	defer n.mu.Unlock()
	now := lookup{address: n.known[name].address, err: err, at: n.o.now()}
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
	n.known[name] = now
	for other, l := range n.known {
		if now.at.Sub(l.at) > dnsForget {
			delete(n.known, other)
		}
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

// byService is the index of CNFServices by the Service that each leads to, as namespace/name.
const byService = "service"

// indexServices makes the index for users. Without it, one namespace with many CNFServices would make each Service of the cluster expensive, and the
// controller never start: at its start, all Services must have passed users within two minutes.
func indexServices(ctx context.Context, indexer client.FieldIndexer, o Options) error {
	return indexer.IndexField(ctx, &batch.CNFService{}, byService, func(obj client.Object) []string {
		if x, ok := obj.(*batch.CNFService); ok {
			if name, ours := sdewan.ServiceOf(x, o.ClusterDomain); ours {
				return []string{name.String()}
			}
		}
		return nil
	})
}

// users returns the CNFs with a CNFService that leads to a Service. It takes a time that depends on these alone.
func (n *names) users(ctx context.Context, service client.Object) []reconcile.Request {
	var list batch.CNFServiceList // the objects of the cache, which must not be changed
	leads := client.MatchingFields{byService: client.ObjectKeyFromObject(service).String()}
	if err := n.client.List(ctx, &list, leads, client.UnsafeDisableDeepCopy); err != nil {
		return nil // there is a cache, or nothing works
	}
	var out []reconcile.Request
	for i := range list.Items {
		out = append(out, request(&list.Items[i]))
	}
	return out
}

// render returns the object that stands for a rule on a pod with these networks. That of a CNFService needs an address, which a table of kinds cannot know.
func (s services) render(r rule, networks sdewan.Networks) (rest.Object, error) {
	x, ok := r.Rule.(*batch.CNFService)
	if !ok {
		return r.kind.Render(r.Rule, networks)
	}
	t := s.targets[x.UID]
	if t.err != nil {
		return nil, t.err
	}
	return sdewan.RenderCNFService(x, t.address, t.proto), nil
}
