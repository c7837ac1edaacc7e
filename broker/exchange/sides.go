package exchange

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// This file makes the clients of both sides, and reads what both hold.

// side is one namespace of one API server.
type side struct {
	set     Set // zero: this cluster
	client  client.WithWatch
	mirrors []*mirror
	polled  bool // not watched: see rounds.go
}

// apiServer is an API server, with the clients for the kinds that are exchanged.
type apiServer struct {
	client.WithWatch
	lists []rest.Interface // by kind; they answer with what the API server has sent: see poll.go
}

// here is the name of this cluster in messages.
const here = "this cluster"

func (s side) String() string {
	if s.set.Name == "" {
		return here
	}
	return "clusterset " + s.set.Name + " on the broker"
}

// connect makes the clients, and a function that closes their connections when they are not used
// any more. It contacts neither side.
func (e *Exchange) connect() (hangUp func(), err error) {
	here, closeHere, err := watchClient(e.config.Local, e.config.Kinds)
	if err != nil {
		return nil, fmt.Errorf("making a client for this cluster: %w", err)
	}
	remote := rest.CopyConfig(e.config.Broker)
	remote.Wrap(func(next http.RoundTripper) http.RoundTripper { return newStreams(next) })
	there, closeThere, err := watchClient(remote, e.config.Kinds)
	if err != nil {
		return nil, fmt.Errorf("making a client for the broker: %w", err)
	}
	e.local = e.side(Set{}, here, e.config.Namespace)
	e.broker = there
	e.sets = nil
	e.renewal = &renewal{
		client:    there.WithWatch,
		account:   e.config.Account,
		changed:   e.trigger.Send,
		announced: e.rounds.hasten,
	}
	return func() { closeHere(); closeThere() }, nil
}

// watch watches a side until ctx is done.
func (s side) watch(ctx context.Context, watches *sync.WaitGroup) {
	for _, m := range s.mirrors {
		watches.Go(func() { m.run(ctx) })
	}
}

// side makes a side; the zero set stands for this cluster, which is not bounded.
func (e *Exchange) side(set Set, c apiServer, namespace string) side {
	s := side{set: set, client: c.WithWatch}
	for i := range e.config.Kinds {
		k := &e.config.Kinds[i]
		m := &mirror{
			client:    c.WithWatch,
			lists:     c.lists[i],
			namespace: namespace,
			kind:      k,
			changed:   e.trigger.Send,
			objects:   map[string]client.Object{},
		}
		if set.Name != "" {
			m.most = k.mostKept()
		}
		s.mirrors = append(s.mirrors, m)
	}
	return s
}

// watchClient returns clients for the kinds, and a function that closes their idle
// connections. They need no discovery, so that they can be made while the API server does not
// answer.
func watchClient(config *rest.Config, kinds Table) (c apiServer, hangUp func(), err error) {
	scheme := runtime.NewScheme()
	kinds.AddToScheme(scheme)
	// the Memory and the grant
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.ConfigMap{}, &corev1.ServiceAccount{},
		&corev1.ServiceAccountList{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), meta.RESTScopeNamespace)
	for _, k := range kinds {
		resource := k.GroupVersion.WithResource(k.Resource)
		mapper.AddSpecific(k.GroupVersion.WithKind(k.Name), resource, resource, meta.RESTScopeNamespace)
	}
	config = rest.CopyConfig(config)
	// the number of writers is the limit; the default of 20 a second would take minutes with 1,000
	// clusters
	config.QPS = -1
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return c, nil, err
	}
	for _, k := range kinds {
		list, err := apiutil.RESTClientForGVK(k.GroupVersion.WithKind(k.Name), false, false, config,
			serializer.NewCodecFactory(scheme), transport)
		if err != nil {
			return c, nil, err
		}
		c.lists = append(c.lists, list)
	}
	c.WithWatch, err = client.NewWithWatch(config,
		client.Options{HTTPClient: transport, Scheme: scheme, Mapper: mapper})
	return c, func() { utilnet.CloseIdleConnectionsFor(transport.Transport) }, err
}

// add appends what the side holds to objects. It returns whether all of it was read, and the reason
// why it is not watched now.
func (s side) add(objects *[]client.Object) (known bool, err error) {
	known = true
	for _, m := range s.mirrors {
		o, k, e := m.read()
		*objects = append(*objects, o...)
		known = known && k
		err = cmp.Or(err, e)
	}
	return known, err
}

// fault returns the reason why the side is not read now; nil if it is.
func (s side) fault() (err error) {
	for _, m := range s.mirrors {
		m.mu.Lock()
		err = cmp.Or(err, m.fault())
		m.mu.Unlock()
	}
	return err
}

// unread reports whether nothing of the side is read now.
func (s side) unread() bool {
	return !slices.ContainsFunc(s.mirrors, func(m *mirror) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.fault() == nil
	})
}

// reserved returns the empty objects that the side holds: see SetSnapshot.
func (s side) reserved() map[string]types.UID {
	out := map[string]types.UID{}
	for _, m := range s.mirrors {
		m.reservations(out)
	}
	return out
}
