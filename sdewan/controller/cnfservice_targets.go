package controller

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
	"subctl/sdewan/controller/fair"
	"subctl/sdewan/rest"
)

// A CNFService makes a port of the CNF lead to a port of a Service: a NAT object, with the address
// of the Service. The address of a Service comes from the API server, and follows it. The address
// of any other name comes from DNS, and is looked up again from time to time.

// resolver finds what the names of CNFServices stand for.
type resolver struct {
	client client.Reader // from the cache, which has indexServices
	o      Options
	slots  *fair.Slots

	mu     sync.Mutex
	found  map[string]lookup
	forgot time.Time // when names were last forgotten
	// lookups of names for namespaces, also those that wait; each is closed when it ends
	running map[types.NamespacedName]chan struct{}
	waiting map[string][]queued // by namespace; has the namespaces for which start runs
}

func newResolver(c client.Reader, o Options) *resolver {
	return &resolver{
		client:  c,
		o:       o,
		slots:   fair.NewSlots(dnsAtOnce),
		found:   map[string]lookup{},
		running: map[types.NamespacedName]chan struct{}{},
		waiting: map[string][]queued{},
	}
}

// target is the destination of a CNFService.
type target struct {
	address netip.Addr
	proto   string
	err     error
}

// same reports whether an object with the one target is the same as with the other, or missing with
// both.
func (t target) same(o target) bool {
	return t.address == o.address && t.proto == o.proto && (t.err == nil) == (o.err == nil)
}

// services has the targets of the CNFServices of a CNF, by UID.
type services struct {
	targets map[types.UID]target
	dns     bool // some are to be looked up again
	late    bool // some lookups have not ended
}

// of resolves the names of all CNFServices among rules. It waits for dnsPatience at most; lookups
// go on without it, and the next call uses what they find.
func (n *resolver) of(ctx context.Context, rules []rule) services {
	s, byDNS := n.known(ctx, rules)
	if len(byDNS) == 0 {
		return s
	}
	var lookups []<-chan struct{}
	for _, x := range rules {
		name, is := byDNS[x.GetUID()]
		if !is {
			continue
		}
		if ended := n.lookup(ctx, types.NamespacedName{Namespace: x.GetNamespace(), Name: name}); ended != nil {
			lookups = append(lookups, ended)
		}
	}
	patience, cancel := context.WithTimeout(ctx, dnsPatience)
	defer cancel()
	late := false
	for _, ended := range lookups {
		select {
		case <-ended:
		case <-patience.Done():
			late = true
		}
	}
	s, _ = n.known(ctx, rules)
	s.late = late
	return s
}

// known returns what is known of the names of all CNFServices among rules, and those that DNS
// resolves. It looks up none.
func (n *resolver) known(ctx context.Context, rules []rule) (s services, byDNS map[types.UID]string) {
	s.targets = map[types.UID]target{}
	byDNS = map[types.UID]string{}
	for _, r := range rules {
		x, ok := r.Rule.(*batch.CNFService)
		if !ok || r.deleting() {
			continue
		}
		dns := x.Spec.FullName
		if name, ours := sdewan.ServiceOf(x, n.o.ClusterDomain); ours {
			if s.targets[x.UID], dns = n.service(ctx, name, string(x.Spec.DPort)); dns == "" {
				continue
			}
		}
		byDNS[x.UID] = dns
	}
	s.dns = len(byDNS) > 0
	n.mu.Lock()
	defer n.mu.Unlock()
	for uid, name := range byDNS {
		t := target{proto: "tcp"}
		t.address, t.err = n.found[name].result()
		s.targets[uid] = t
	}
	return s, byDNS
}

// service returns the address of a Service, and the protocol of its port; or the name in DNS that
// the Service stands for.
func (n *resolver) service(ctx context.Context, name types.NamespacedName, port string) (t target, dns string) {
	var s corev1.Service
	err := n.client.Get(ctx, name, &s)
	switch {
	case apierrors.IsNotFound(err):
		return target{
			err: fmt.Errorf("spec.fullname: there is no Service %s: create it, or correct the name", name),
		}, ""
	case err != nil:
		return target{err: fmt.Errorf("spec.fullname: reading Service %s: %w", name, err)}, ""
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return target{}, s.Spec.ExternalName
	}
	t.address, t.proto, t.err = sdewan.ServiceAddress(&s, port)
	return t, ""
}

// byService is the index of CNFServices by the Service that each leads to, as namespace/name.
const byService = "service"

// indexServices makes the index for users. Without it, one namespace with many CNFServices would
// make each Service of the cluster expensive, and the controller never start: at its start, all
// Services must have passed users within two minutes.
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

// users returns the CNFs with a CNFService that leads to a Service. It takes a time that depends on
// these alone.
func (n *resolver) users(ctx context.Context, service client.Object) []reconcile.Request {
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

// render returns the object that stands for a rule on a pod with these networks. That of a
// CNFService needs an address, which a table of kinds cannot know.
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
