package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh"
)

// podServer is an API server of pods. It streams lists, or lists pages of at most two pods.
type podServer struct {
	streams bool

	mu      sync.Mutex
	pods    map[string]*corev1.Pod
	version int
	watches []*watch.RaceFreeFakeWatcher
	limits  []int64 // of lists
}

func (s *podServer) set(name, ip string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	event := watch.Modified
	if s.pods[name] == nil {
		event = watch.Added
	}
	s.version++
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: strconv.Itoa(s.version)},
	}
	p.Status.PodIP = ip
	s.pods[name] = p
	for _, w := range s.watches {
		w.Action(event, p.DeepCopy())
	}
}

func (s *podServer) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[name]
	delete(s.pods, name)
	for _, w := range s.watches {
		w.Action(watch.Deleted, p)
	}
}

// forget ends all watches, and forgets what has happened.
func (s *podServer) forget() {
	for _, w := range s.watches {
		w.Action(watch.Error, &apierrors.NewResourceExpired("too old").ErrStatus)
		w.Stop()
	}
	s.watches = nil
}

func (s *podServer) sorted() (out []*corev1.Pod) {
	for _, p := range s.pods {
		out = append(out, p.DeepCopy())
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int { return mesh.CompareKey(a, mesh.KeyOf(b)) })
	return out
}

func (s *podServer) list(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = append(s.limits, opts.Limit)
	out := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
	from, _ := strconv.Atoi(opts.Continue)
	for i, p := range s.sorted() {
		// as API servers, which ignore the limit otherwise
		if i == from+2 && opts.ResourceVersion == "" && opts.Limit > 0 {
			out.Continue = strconv.Itoa(i)
			break
		}
		if i >= from {
			out.Items = append(out.Items, *p)
		}
	}
	return out, nil
}

func (s *podServer) watch(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := watch.NewRaceFreeFake()
	if opts.SendInitialEvents != nil {
		if !s.streams {
			return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil)
		}
		for _, p := range s.sorted() {
			w.Add(p)
		}
		w.Action(
			watch.Bookmark,
			&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					ResourceVersion: strconv.Itoa(s.version),
					Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
				},
			},
		)
	}
	s.watches = append(s.watches, w)
	return w, nil
}

// The informer of an agent without a node has the objects that the API server has: after the first
// list, after events, and after a break in which it has missed some. Handlers know each change, and
// pages of a list become slim one after the other.
func TestInformer(t *testing.T) {
	for _, streams := range []bool{true, false} {
		s := &podServer{streams: streams, pods: map[string]*corev1.Pod{}}
		for i := range 5 {
			s.set(fmt.Sprint("p", i), "10.244.0.1")
		}
		l := newLists(mesh.Globalnet().Watches)
		kind := &corev1.Pod{}
		i := l.newInformer(&toolscache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}, kind, 0,
			nil)
		require.NoError(t, i.SetTransform(func(o any) (any, error) { return mesh.Slim(o.(client.Object)), nil }))
		var mu sync.Mutex
		var events []string
		_, err := i.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(o any, first bool) {
				mu.Lock()
				defer mu.Unlock()
				events = append(events, fmt.Sprint("add ", o.(client.Object).GetName(), " ", first))
			},
			UpdateFunc: func(_, o any) {
				mu.Lock()
				defer mu.Unlock()
				events = append(events, fmt.Sprint("update ", o.(client.Object).GetName()))
			},
			DeleteFunc: func(o any) {
				mu.Lock()
				defer mu.Unlock()
				events = append(events, fmt.Sprint("delete ", o.(client.Object).GetName()))
			},
		})
		require.NoError(t, err)
		seen := func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(events) }
		require.False(t, i.HasSynced())
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { i.RunWithContext(ctx); close(ended) }()
		require.Eventually(t, i.HasSynced, 10*time.Second, time.Millisecond)
		require.Equal(t, []string{"add p0 true", "add p1 true", "add p2 true", "add p3 true", "add p4 true"}, seen())
		same := func() {
			t.Helper()
			require.Eventually(t, func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return slices.EqualFunc(l.list(kind), s.sorted(), func(o mesh.Object, p *corev1.Pod) bool {
					return o.GetName() == p.Name && o.(interface{ IP() netip.Addr }).IP().String() == p.Status.PodIP
				})
			}, 20*time.Second, time.Millisecond)
		}
		same()
		s.mu.Lock()
		if !streams {
			require.Equal(t, []int64{listedAtOnce, listedAtOnce, listedAtOnce}, s.limits, "pages")
		} else {
			require.Empty(t, s.limits)
		}
		s.mu.Unlock()
		require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.watches) == 1 },
			10*time.Second, time.Millisecond)
		s.set("p1", "10.244.0.9")
		s.set("p9", "10.244.0.8")
		s.remove("p0")
		same()
		require.Eventually(t, func() bool { return len(seen()) == 8 }, 10*time.Second, time.Millisecond,
			"handlers are called after the lists have changed")
		require.Equal(t, []string{"update p1", "add p9 false", "delete p0"}, seen()[5:])

		t.Log("changes that it misses")
		s.mu.Lock()
		s.forget()
		s.mu.Unlock()
		s.remove("p1")
		s.set("p2", "10.244.0.7")
		s.set("p7", "10.244.0.7")
		same()
		require.Eventually(t, func() bool {
			return !slices.ContainsFunc([]string{"delete p1", "update p2", "add p7 false"},
				func(want string) bool { return !slices.Contains(seen()[8:], want) })
		}, 10*time.Second, time.Millisecond, "%v", seen())

		t.Log("a handler that comes later")
		var late int
		_, err = i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { late++ }})
		require.NoError(t, err)
		require.Equal(t, 5, late)
		stop()
		<-ended
	}
}
