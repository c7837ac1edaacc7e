package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
	"subctl/sdewan/rest"
	restclient "subctl/sdewan/rest/client"
)

// byDNS returns CNFServices of a namespace that lead to name0.example.org, name1.example.org, …,
// which are their UIDs.
func byDNS(namespace, name string, count int) (rules []rule) {
	for i := range count {
		x := &batch.CNFService{}
		x.Namespace = namespace
		x.Spec.FullName = fmt.Sprintf("%s%d.example.org", name, i)
		x.Spec.DPort = "80"
		x.UID = types.UID(x.Spec.FullName)
		rules = append(rules, rule{Rule: x})
	}
	return rules
}

// Names that nobody answers for, in one namespace, keep no CNF of another one waiting, and no CNF
// for long.
func TestHostileDNS(t *testing.T) {
	n := newResolver(
		nil,
		Options{
			now:           time.Now,
			ClusterDomain: "cluster.local",
			Resolve: func(ctx context.Context, name string) ([]netip.Addr, error) {
				if strings.HasPrefix(name, "slow") {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				if strings.HasPrefix(name, "late") {
					time.Sleep(dnsPatience + 200*time.Millisecond)
				}
				return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
			},
		},
	)
	hostile := make(chan time.Duration)
	start := time.Now()
	go func() {
		n.of(t.Context(), byDNS("hostile", "slow", 200))
		hostile <- time.Since(start)
	}()
	time.Sleep(100 * time.Millisecond)
	begin := time.Now()
	s := n.of(t.Context(), byDNS("other", "good", 3))
	require.Less(t, time.Since(begin), 2*time.Second)
	require.Len(t, s.targets, 3)
	for _, to := range s.targets {
		require.NoError(t, to.err)
	}
	require.Less(t, <-hostile, dnsPatience+time.Second, "the rules of the CNF that need no name wait")
	s = n.of(t.Context(), byDNS("other", "late", 1))
	require.True(t, s.late, "so that it is tried again soon")
	require.ErrorContains(t, s.targets["late0.example.org"].err, "not looked up yet")
	time.Sleep(dnsPatience)
	s = n.of(t.Context(), byDNS("other", "late", 1))
	require.NoError(t, s.targets["late0.example.org"].err, "the lookup went on")
	require.False(t, s.late)
}

// A name that waits for its lookup costs next to nothing, and a CNF whose names are not looked up
// in time is tried more and more seldom.
func TestHostileManyNames(t *testing.T) {
	const many = 2000
	n := newResolver(
		nil,
		Options{
			now:           time.Now,
			ClusterDomain: "cluster.local",
			Resolve: func(ctx context.Context, _ string) ([]netip.Addr, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
		},
	)
	rules := byDNS("hostile", "n", many)
	before := runtime.NumGoroutine()
	for range 2 {
		s := n.of(t.Context(), rules)
		require.True(t, s.late)
		require.Len(t, s.targets, many)
		require.Less(t, runtime.NumGoroutine()-before, 5*dnsAtOnce)
		n.mu.Lock()
		require.Len(t, n.running, many, "each is looked up once")
		n.mu.Unlock()
	}
	r := &podReconciler{
		o: Options{Resync: time.Minute, RetryFrom: 500 * time.Millisecond, RetryUntil: 30 * time.Second},
	}
	r.backoff = workqueue.NewTypedItemExponentialFailureRateLimiter[podKey](r.o.RetryFrom, r.o.RetryUntil)
	key := podKey{types.NamespacedName{Namespace: "hostile", Name: "cnf"}, "pod"}
	var pauses []time.Duration
	for range 8 {
		pauses = append(pauses, r.pause(key, false, services{dns: true, late: true}))
	}
	require.Equal(t, []time.Duration{2e9, 2e9, 2e9, 4e9, 8e9, 16e9, 30e9, 30e9}, pauses)
	require.LessOrEqual(t, r.pause(key, false, services{dns: true}), dnsAgain)
	require.Equal(t, dnsSoon, r.pause(key, false, services{dns: true, late: true}))
}

// Names that nobody answers for, of older rules of the same CNF, do not keep another name from
// being looked up, and its address from being followed.
func TestHostileOlderNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 30 * time.Second // between attempts, which is what back-off ends with
		const turn = 4                 // attempts, in which each name is looked up
		next := time.Now()
		moves := next.Add(turn * every) // the name, to another address
		n := newResolver(
			nil,
			Options{
				now:           time.Now,
				ClusterDomain: "cluster.local",
				Resolve: func(ctx context.Context, name string) ([]netip.Addr, error) {
					if strings.HasPrefix(name, "slow") {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					if time.Now().Before(moves) {
						return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
					}
					return []netip.Addr{netip.MustParseAddr("192.0.2.2")}, nil
				},
			},
		)
		defer time.Sleep(every) // the last lookups end
		rules := append(byDNS("hostile", "slow", 50), byDNS("hostile", "good", 1)...)
		for _, want := range []string{"192.0.2.1", "192.0.2.2"} {
			var s services
			for range turn {
				time.Sleep(time.Until(next))
				s = n.of(t.Context(), rules)
				next = next.Add(every)
			}
			good := s.targets["good0.example.org"]
			require.NoError(t, good.err)
			require.Equal(t, want, good.address.String())
		}
	})
}

// The status of a CNF takes bounded time to shorten, fits in an object, and comes back from the API
// server as it was written.
func TestHostileStatus(t *testing.T) {
	for name, text := range map[string]string{
		"long":      strings.Repeat("x", 50<<10),
		"half":      strings.Repeat("x", 700),
		"escaped":   strings.Repeat("<", 10<<10),
		"not UTF-8": strings.Repeat("\xff", 500),
	} {
		var modules []restclient.Module
		for i := range 64 {
			modules = append(modules, restclient.Module{Name: fmt.Sprint(i), Status: json.RawMessage(`"` + text + `"`)})
		}
		start := time.Now()
		s := shortened(modules)
		require.Less(t, time.Since(start), 30*time.Second, name)
		require.LessOrEqual(t, len(s), maxStatus, name)
		require.True(t, utf8.ValidString(s), name)
		require.Contains(t, string(modules[0].Status), text, "the modules of the caller are as they were")
	}
}

// A CNF that returns many MiB in each of its collections is given up before all of them are in
// memory.
func TestHostileCollections(t *testing.T) {
	b := newBox(t)
	_, err := b.client.List(t.Context(), rest.Policies) // logs in
	require.NoError(t, err)
	body := `":[{"name":"a","x":"` + strings.Repeat("x", 5<<20) + `"}]}`
	asked := 0
	b.Fail(func(w http.ResponseWriter, r *http.Request) {
		asked++
		name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		fmt.Fprint(w, `{"`+name+body)
	})
	_, err = b.memory.sync(t.Context(), b.client, want(), syncOptions{})
	require.ErrorContains(t, err, "the CNF has objects of more than 16 MiB altogether")
	require.Equal(t, 4, asked)
}

// What a pod has returned is not in memory any more when its sync has ended: a CNF may have many
// pods, which end one after another. Nor is it kept for the next sync.
func TestHostileReplicas(t *testing.T) {
	long := strings.Repeat("x", 7<<20)
	body := `{"policies":[{"name":"a","x":"` + long + `"},{"name":"b","x":"` + long + `"},{"name":"c"}]}`
	for name, test := range map[string]struct {
		fails int // the answer about rules
		keeps bool
		hangs int
	}{
		"failed sync":   {fails: http.StatusInternalServerError},
		"all is kept":   {keeps: true},
		"removals hang": {hangs: maxHangs},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBoxWithin(t, 3*time.Second)
			_, err := b.client.List(t.Context(), rest.Policies) // logs in
			require.NoError(t, err)
			b.Answer(func(w http.ResponseWriter, r *http.Request) bool {
				switch {
				case r.Method == http.MethodDelete:
					<-r.Context().Done()
				case strings.HasSuffix(r.URL.Path, "/policies"):
					fmt.Fprint(w, body)
				case test.fails != 0 && strings.HasSuffix(r.URL.Path, "/rules"):
					http.Error(w, "no", test.fails)
				default:
					return false
				}
				return true
			})
			desires := want()
			desires[0].deleted = []string{"gone", "a"}
			if test.keeps {
				desires[0].keep = func(string) bool { return true }
			}
			before := heap()
			s, err := b.memory.sync(t.Context(), b.client, desires, syncOptions{})
			require.Equal(t, test.fails != 0, err != nil, "%v", err)
			require.Less(t, heap()-before, 5, "MiB; the pod returned 14")
			require.Equal(t, map[id]bool{{rest.Policies, "a"}: true}, s.remains)
			require.Len(t, b.doubts, test.hangs)
		})
	}
}

// heap returns how much memory is in use, in MiB.
func heap() int {
	runtime.GC()
	runtime.GC() // what pools hold
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc >> 20)
}

// What is long, or much, in annotations takes bounded time and memory.
func TestHostileAnnotations(t *testing.T) {
	d := &appsv1.Deployment{}
	var patterns []string
	for i := range 20000 {
		patterns = append(patterns, fmt.Sprintf("firewall/rules/%d-*", i))
	}
	d.Annotations = map[string]string{UnmanagedAnnotation: strings.Join(patterns, ",")}
	keep, mistakes := cnf{deployments: []*appsv1.Deployment{d}}.unmanaged()
	require.Equal(t, []string{"annotation sdewan.subctl.io/unmanaged has 20000 patterns: only the first 256 count"},
		mistakes)
	require.True(t, keep(rest.FirewallRules, "255-x"))
	require.False(t, keep(rest.FirewallRules, "256-x"))
}

// Pods of another Deployment, whose name begins with the CNF's name, are not pods of the CNF,
// although they have its labels.
func TestHostilePods(t *testing.T) {
	d := &appsv1.Deployment{}
	d.Name = "edge"
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{sdewan.PurposeLabel: "p"}}
	pod := func(set, hash string) corev1.Pod {
		p := corev1.Pod{}
		p.Name = set + "-x"
		p.Labels = map[string]string{sdewan.PurposeLabel: "p", appsv1.DefaultDeploymentUniqueLabelKey: hash}
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: set, Controller: new(true)}}
		return p
	}
	pods := live(d, []corev1.Pod{pod("edge-5d4f8", "5d4f8"), pod("edge-tools-77c9b", "77c9b"), pod("edge-old", "")})
	require.Len(t, pods, 1)
	require.Equal(t, "edge-5d4f8-x", pods[0].Name)
}
