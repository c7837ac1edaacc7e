package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/internal/kubetest"
	"subctl/internal/measure"
)

// BenchmarkEndWatches measures what it costs to end all watches of a broker, as "subctl clusterset
// remove" does: how long it takes until all members have read all kinds again, and the API server's
// CPU time. 1,000 members are in a clusterset of their own each, or 250 are in one, where each
// reads all others.
func BenchmarkEndWatches(b *testing.B) {
	for b.Loop() {
		b.Run("many clustersets",
			func(b *testing.B) { measureEndWatches(b, "1,000 members in 1,000 clustersets", manySets, manySets) })
		b.Run("one clusterset", func(b *testing.B) { measureEndWatches(b, "250 members of one clusterset", 250, 1) })
	}
}

func measureEndWatches(b *testing.B, name string, members, sets int) {
	w := newReadersWorld(b, members, sets)
	readers := w.read(b)
	var took, cpu, gap, failed, lists measure.Values
	for range measure.Times(3) {
		time.Sleep(5 * time.Second) // what was begun before has ended
		for _, r := range readers {
			r.forget()
		}
		before := measure.CPUOf(b, w.Server.PID())
		began := time.Now()
		require.NoError(b, broker.EndWatches(b.Context(), w.Admin))
		all(b, readers, func(r *reader) bool { return !r.ended.IsZero() && r.reads })
		took = append(took, time.Since(began).Seconds())
		cpu = append(cpu, measure.CPUOf(b, w.Server.PID())-before)
		longest := time.Duration(0)
		errors := 0
		listed := 0
		kinds := map[string]int{}
		for _, r := range readers {
			longest = max(longest, r.back.Sub(r.ended))
			errors = errors + len(r.failed)
			listed = listed + r.lists
			for _, err := range r.failed {
				kinds[err]++
			}
		}
		b.Logf("%s: %.1f s, %d lists, errors: %v", name, took[len(took)-1], listed, kinds)
		gap = append(gap, longest.Seconds())
		failed = append(failed, float64(errors))
		lists = append(lists, float64(listed))
	}
	measure.Record(b,
		measure.Info("watches of "+name+" end: until all have read all kinds again", took, "s"),
		measure.Info("watches of "+name+" end: CPU time of the API server until then", cpu, "s"),
		measure.Info("watches of "+name+" end: longest time during which a member watches a kind no more", gap, "s"),
		measure.Info("watches of "+name+" end: lists", lists, "lists"),
		measure.Info("watches of "+name+" end: requests of members that fail", failed, "requests"))
}

// newReadersWorld makes a broker with so many members, in so many clustersets, which have published
// their objects.
func newReadersWorld(b *testing.B, members, sets int) *hubWorld {
	b.Helper()
	server := kubetest.Start(b)
	w := &hubWorld{}
	var distinct []string
	for i := range sets {
		distinct = append(distinct, fmt.Sprintf("set-%04d", i))
	}
	for i := range members {
		w.sets, w.spokes = append(w.sets, distinct[i%sets]), append(w.spokes, fmt.Sprintf("spoke-%04d", i))
	}
	w.Broker = brokertest.Deploy(b, server)
	w.addSets(b, distinct)
	c := membersClient(b, server)
	parallel(b, members, func(i int) error { return w.joinSpoke(b.Context(), c, i) })
	return w
}

// read lets each member read each kind, on a connection of its own.
func (w *hubWorld) read(b *testing.B) (readers []*reader) {
	b.Helper()
	for i, id := range w.spokes {
		config := w.Server.Config()
		config.Impersonate.UserName = "system:serviceaccount:" + w.NS + ":" + broker.MemberName(id)
		config.Dial = (&net.Dialer{}).DialContext
		http, err := rest.HTTPClientFor(config)
		require.NoError(b, err)
		for _, k := range exchange.Kinds() {
			group := rest.CopyConfig(config)
			group.GroupVersion = &k.GroupVersion
			group.APIPath = "/apis"
			group.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
			c, err := rest.RESTClientForConfigAndClient(group, http)
			require.NoError(b, err)
			r := &reader{client: c, namespace: broker.NamespaceIn(w.NS, w.sets[i]), resource: k.Resource}
			readers = append(readers, r)
			go r.run(b.Context())
		}
	}
	all(b, readers, func(r *reader) bool { return r.reads })
	return readers
}

// all waits until a condition holds for all readers.
func all(b *testing.B, readers []*reader, holds func(*reader) bool) {
	b.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		n := 0
		for _, r := range readers {
			r.mu.Lock()
			if holds(r) {
				n++
			}
			r.mu.Unlock()
		}
		if n == len(readers) {
			return
		}
		require.True(b, time.Now().Before(deadline), "%d of %d readers", n, len(readers))
	}
}

// reader reads a kind of objects in a namespace of the broker as package broker/exchange does, but
// keeps nothing.
type reader struct {
	client              *rest.RESTClient
	namespace, resource string

	mu     sync.Mutex
	reads  bool      // it has read everything and watches
	ended  time.Time // when the last watch ended
	back   time.Time // when it watched again
	lists  int
	failed []string // why requests have failed
}

func (r *reader) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = time.Time{}
	r.back = time.Time{}
	r.lists = 0
	r.failed = nil
}

// note changes the reader. It is watching if nothing failed, and its list is complete.
func (r *reader) note(err error, watching bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.failed = append(r.failed, err.Error())
	case watching:
		r.reads = true
		r.back = time.Now()
	}
}

func (r *reader) run(ctx context.Context) {
	discard := logr.Discard()
	cache.NewReflectorWithOptions(
		&cache.ListWatch{ListWithContextFunc: r.list, WatchFuncWithContext: r.watch},
		&metav1.PartialObjectMetadata{},
		r,
		cache.ReflectorOptions{
			// as in broker/exchange
			Logger: &discard,
			Backoff: &wait.Backoff{
				Duration: 200 * time.Millisecond,
				Factor:   2,
				Jitter:   1,
				Steps:    20,
				Cap:      5 * time.Second,
			},
		},
	).RunWithContext(logr.NewContext(ctx, discard))
}

func (r *reader) request(o metav1.ListOptions) *rest.Request {
	return r.client.Get().Namespace(r.namespace).Resource(r.resource).VersionedParams(&o, metav1.ParameterCodec)
}

// list reads a list, and returns its version only.
func (r *reader) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	body, err := r.request(o).DoRaw(ctx)
	r.note(err, false)
	if err != nil {
		return nil, err
	}
	list := &metav1.PartialObjectMetadataList{}
	return list, json.Unmarshal(
		body[bytes.LastIndex(body, []byte(`"metadata":`))+len(`"metadata":`):len(bytes.TrimSpace(body))-1],
		&list.ListMeta)
}

func (r *reader) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	ctx, stop := context.WithCancel(ctx)
	o.Watch = true
	body, err := r.request(o).Stream(ctx)
	initial := o.SendInitialEvents != nil && *o.SendInitialEvents
	r.note(err, !initial)
	if err != nil {
		stop()
		return nil, err
	}
	w := &rawWatch{events: make(chan watch.Event), stop: stop}
	go func() {
		defer body.Close()
		w.relay(ctx, body)
		r.mu.Lock()
		r.reads = false
		r.ended = time.Now()
		r.mu.Unlock()
		close(w.events)
	}()
	return w, nil
}

// The methods of cache.ReflectorStore.

// Replace implements cache.ReflectorStore: a list is complete.
func (r *reader) Replace([]any, string) error {
	r.mu.Lock()
	r.lists++
	r.mu.Unlock()
	r.note(nil, true)
	return nil
}

// Add implements cache.ReflectorStore.
func (*reader) Add(any) error { return nil }

// Update implements cache.ReflectorStore.
func (*reader) Update(any) error { return nil }

// Delete implements cache.ReflectorStore.
func (*reader) Delete(any) error { return nil }

// Resync implements cache.ReflectorStore.
func (*reader) Resync() error { return nil }

// rawWatch decodes only the metadata of bookmarks, and the versions of objects.
type rawWatch struct {
	events chan watch.Event
	stop   func()
}

// ResultChan implements watch.Interface.
func (w *rawWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *rawWatch) Stop() { w.stop() }

// relay reads events until the watch ends.
func (w *rawWatch) relay(ctx context.Context, body io.Reader) {
	for in := bufio.NewReaderSize(body, 8<<10); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		event := watch.Event{Object: &metav1.PartialObjectMetadata{}}
		typ, rest, _ := bytes.Cut(line[len(`{"type":"`):], []byte(`"`))
		switch event.Type = watch.EventType(typ); event.Type {
		case watch.Error, watch.Bookmark:
			if event.Type == watch.Error {
				event.Object = &metav1.Status{}
			}
			err = json.Unmarshal(bytes.TrimSuffix(bytes.TrimSpace(rest[len(`,"object":`):]), []byte("}")), event.Object)
		default:
			_, version, _ := bytes.Cut(rest, []byte(`"resourceVersion":"`))
			version, _, _ = bytes.Cut(version, []byte(`"`))
			event.Object.(*metav1.PartialObjectMetadata).ResourceVersion = string(version)
		}
		if err != nil {
			return
		}
		select {
		case w.events <- event:
		case <-ctx.Done():
			return
		}
	}
}
