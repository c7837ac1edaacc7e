package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
	"subctl/sdewan/rest"
	"subctl/sdewan/rest/openwrttest"
)

// A rule whose label no Deployment has waits, has no finalizer, and is applied when there is one.
func TestNoCNF(t *testing.T) {
	w := newWorld(t)
	w.run()
	p := w.policy("cnf-1", "p")
	none := w.policy("", "none")
	none.Labels = nil
	w.create(p)
	w.create(none)
	require.Contains(t, w.waits(p, NoCNF), "has the label sdewanPurpose=cnf-1")
	require.Contains(t, w.waits(none, NoPurpose), "sdewanPurpose")
	require.Empty(t, p.Finalizers)
	require.Contains(t, w.event(NoCNF), "sdewanPurpose=cnf-1")
	pods := w.cnf("cnf-1", 1)
	w.inSync(p)
	// A CNF that is gone does not keep its rules.
	w.delete(&appsv1.Deployment{ObjectMeta: w.named("cnf-1")})
	w.waits(p, NoCNF)
	require.Contains(t, p.Finalizers, Finalizer)
	w.delete(p)
	w.gone(p)
	w.delete(none)
	w.gone(none)
	require.Equal(t, []string{"p"}, pods[0].Names(rest.Policies), "nobody asks a CNF that is gone")
}

// Two CNFs with one label get nothing, until one of them is gone.
func TestSeveralCNFs(t *testing.T) {
	w := newWorld(t)
	w.run()
	pods := w.cnf("cnf-1", 1)
	w.create(w.deployment("cnf-2", "cnf-1", 1))
	p := w.policy("cnf-1", "p")
	w.create(p)
	require.Contains(t, w.waits(p, SeveralCNFs), "Deployments cnf-1 and cnf-2 both have the label sdewanPurpose=cnf-1")
	require.Contains(t, w.event(SeveralCNFs), "cnf-2")
	require.Empty(t, pods[0].Names(rest.Policies))
	w.delete(&appsv1.Deployment{ObjectMeta: w.named("cnf-2")})
	w.inSync(p)
}

// A rule applies to the CNF of its own namespace, and a label that is changed moves it.
func TestNamespacesAndLabels(t *testing.T) {
	w := newWorld(t)
	other := newWorld(t)
	w.run()
	other.run()
	here := w.cnf("cnf-1", 1)[0]
	there := other.cnf("cnf-1", 1)[0]
	second := w.cnf("cnf-2", 1)[0]
	p := w.policy("cnf-1", "p")
	w.create(p)
	w.inSync(p)
	require.Equal(t, []string{"p"}, here.EffectiveNames(rest.Policies))
	require.Empty(t, there.Names(rest.Policies))
	p.Labels[sdewan.PurposeLabel] = "cnf-2"
	require.NoError(t, w.client.Update(t.Context(), p))
	w.holds(second, rest.Policies, "p")
	w.holds(here, rest.Policies)
	// A CNF that is scaled to zero holds nothing, so its rules can be deleted.
	d := &appsv1.Deployment{}
	require.NoError(t, retryConflict(func() error {
		require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "cnf-2"}, d))
		d.Spec.Replicas = new(int32(0))
		return w.client.Update(t.Context(), d)
	}))
	w.waits(p, NoPods)
	w.delete(p)
	w.gone(p)
}

// A rollout leaves an old ReplicaSet, and pods of both while it lasts.
func TestRollout(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.cnf("cnf-1", 2)
	p := w.policy("cnf-1", "p")
	w.create(p)
	w.inSync(p)
	d := &appsv1.Deployment{}
	require.NoError(t, retryConflict(func() error {
		require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "cnf-1"}, d))
		d.Spec.Template.Spec.Containers[0].Image = "cnf:2"
		return w.client.Update(t.Context(), d)
	}))
	w.eventually(func() error {
		pods := w.pods("cnf-1") // starts the new ones
		var list corev1.PodList
		if err := w.client.List(t.Context(), &list, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		for _, o := range list.Items {
			if o.Spec.Containers[0].Image != "cnf:2" {
				return fmt.Errorf("%s is still there", o.Name)
			}
		}
		return twoPods(pods)
	})
	for _, pod := range w.pods("cnf-1") {
		w.holds(pod, rest.Policies, "p")
	}
	w.inSync(p)
}

// TestHostileCNFs has CNFs that fail in every way. The other pod of the CNF, and the other CNF,
// have their rules all the same, and the pod gets its rules when it is well.
func TestHostileCNFs(t *testing.T) {
	for name, test := range map[string]struct {
		fail   http.HandlerFunc
		break_ func(*world, *pod)
		repair func(*world, *pod)
		reason string
		want   string
	}{
		"answers 500": {
			fail:   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 500) },
			reason: Unreachable,
			want:   "500: no",
		},
		"garbage": {
			fail:   func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "\x00{") },
			reason: Unreachable,
			want:   "cookie",
		},
		"garbage after the login": {fail: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == rest.Base {
				w.Header().Set("Set-Cookie", "sysauth=1")
				w.WriteHeader(http.StatusFound)
				return
			}
			fmt.Fprint(w, `{"policies":[{"nam`)
		}, reason: Unreachable, want: "nonsense"},
		"slowly": {fail: func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				fmt.Fprint(w, " ")
				w.(http.Flusher).Flush()
				time.Sleep(50 * time.Millisecond)
			}
		}, reason: Unreachable, want: "too long"},
		"never": {
			fail:   func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			reason: Unreachable,
			want:   "too long",
		},
		"is down": {
			break_: func(_ *world, p *pod) { p.stop() },
			repair: (*world).connect,
			reason: Unreachable,
			want:   "refused",
		},
		"wrong certificate": {break_: func(w *world, p *pod) {
			p.stop()
			_, p.stop = openwrttest.Serve(w, hostPort(netipAddr(p.ip), port),
				openwrttest.NewAuthority(w).Certificate(w, "*."+w.namespace+".pod.cluster.local"), p.Box)
		}, repair: func(w *world, p *pod) { p.stop(); w.connect(p) }, reason: Untrusted, want: "unknown authority"},
		"wrong password": {
			break_: func(_ *world, p *pod) { p.SetPassword("x") },
			repair: func(_ *world, p *pod) { p.SetPassword(password) },
			reason: Unauthorized,
			want:   "does not accept the password",
		},
		"does not restart": {
			break_: func(_ *world, p *pod) { p.BreakService("mwan3", true) },
			repair: func(_ *world, p *pod) { p.BreakService("mwan3", false) },
			reason: RestartFailed,
			want:   "restarting mwan3",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			pods := w.cnf("cnf-1", 2)
			other := w.cnf("cnf-2", 1)
			if test.fail != nil {
				pods[0].Fail(test.fail)
			} else {
				test.break_(w, pods[0])
			}
			w.runWith(Options{Timeout: time.Second})
			p := w.policy("cnf-1", "p")
			q := w.policy("cnf-2", "q")
			w.create(p)
			w.create(q)
			w.inSync(q)
			require.Equal(t, []string{"q"}, other[0].EffectiveNames(rest.Policies))
			w.holds(pods[1], rest.Policies, "p")
			var message string
			w.eventually(func() error { // a pod that is only slow, as the machine is busy, is unreachable for a moment
				if message = w.waits(p, test.reason); !strings.Contains(message, test.want) ||
					!strings.Contains(message, pods[0].name) {
					return errors.New(message)
				}
				return nil
			})
			require.NotContains(t, message, password)
			require.Empty(t, p.Finalizers, "it has not been applied to all pods")
			if test.reason != RestartFailed {
				require.Contains(t, w.event(test.reason), pods[0].name)
			}
			if test.fail != nil {
				pods[0].Fail(nil)
			} else {
				test.repair(w, pods[0])
			}
			w.inSync(p)
			require.Equal(t, []string{"p"}, pods[0].EffectiveNames(rest.Policies))
			require.NotContains(t, w.log.String(), password)
		})
	}
}

// A CNF that answers differently each time does not have the statuses of its rules written each
// time.
func TestHostileFickleCNF(t *testing.T) {
	var calls atomic.Int64
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"another message": func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, fmt.Sprint("no ", calls.Add(1)), 500)
			return true
		},
		"another reason": func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "no", map[bool]int{true: 500, false: 403}[calls.Add(1)%2 == 0])
			return true
		},
		"another message about a restart": func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != rest.ServicePath("mwan3") {
				return false
			}
			http.Error(w, fmt.Sprint("no ", calls.Add(1)), 500)
			return true
		},
		"another message about an object": func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPost || r.URL.Path != rest.Policies.Path() {
				return false
			}
			http.Error(w, fmt.Sprint("no ", calls.Add(1)), 400)
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.cnf("cnf-1", 1)[0].Answer(answer)
			w.runWith(Options{RetryFrom: 20 * time.Millisecond, RetryUntil: 20 * time.Millisecond})
			p := w.policy("cnf-1", "p")
			w.create(p)
			further := func() {
				from := calls.Load()
				w.eventually(func() error {
					if n := calls.Load() - from; n < 20 {
						return fmt.Errorf("%d calls", n)
					}
					return nil
				})
				require.NoError(t, w.get(p))
			}
			further()
			require.False(t, p.Status.InSync)
			w.eventually(func() error { // the CNF is asked again before the first statuses are written
				version := p.ResourceVersion
				if further(); version != p.ResourceVersion {
					return errors.New("the status is written again")
				}
				return nil
			})
		})
	}
}

// What a CNF tells changes three times a minute, and no more often.
func TestNews(t *testing.T) {
	now := time.Unix(1700000000, 0)
	r := &cnfReconciler{
		o: Options{
			Log: slog.New(slog.DiscardHandler),
			now: func() time.Time { return now },
		}, events: &events.FakeRecorder{},
		faults: map[types.NamespacedName]problem{}, told: map[types.NamespacedName]news{},
	}
	key := types.NamespacedName{Namespace: "a", Name: "cnf"}
	said := func(reason, message string) string {
		p := r.steady(key, problem{reason, message}, func() bool { return r.mayTell(key) })
		r.trouble(key, &appsv1.Deployment{}, p)
		return p.message
	}
	require.Equal(t, "one", said(Unreachable, "one"))
	require.Equal(t, "two", said(Unreachable, "two"))
	now = now.Add(newsTime / 2)
	require.Equal(t, "three", said(Unauthorized, "three"))
	require.Equal(t, "three", said(Unauthorized, "three"))
	require.Equal(t, "four", said(Unreachable, "four"))
	require.Equal(t, "four", said(Untrusted, "five"))
	require.Equal(t, "six", said(NoCredentials, "six"), "which is not what the CNF tells")
	require.Equal(t, "seven", said(Unreachable, "seven"))
	now = now.Add(newsTime / 2)
	require.Equal(t, "eight", said(Unreachable, "eight"))
}

// Secrets that are missing or incomplete are reported, and read again.
func TestCredentials(t *testing.T) {
	w := newWorld(t)
	w.run()
	d := w.deployment("cnf-1", "cnf-1", 1)
	d.Spec.Template.Labels[sdewan.AccountLabel] = "mine"
	w.create(d)
	w.eventually(func() error {
		if len(w.pods("cnf-1")) != 1 {
			return fmt.Errorf("no pod")
		}
		return nil
	})
	p := w.policy("cnf-1", "p")
	w.create(p)
	require.Contains(t, w.waits(p, NoCredentials), "Secret mine")
	secret := &corev1.Secret{ObjectMeta: w.named("mine"), StringData: map[string]string{"pass": password}}
	w.create(secret)
	w.eventually(func() error {
		if m := w.waits(p, NoCredentials); !strings.Contains(m, "has no key password") {
			return fmt.Errorf("%s", m)
		}
		return nil
	})
	secret.StringData = map[string]string{"password": "old"}
	require.NoError(t, w.client.Update(t.Context(), secret))
	w.waits(p, Unauthorized)
	secret.StringData = map[string]string{"password": password}
	require.NoError(t, w.client.Update(t.Context(), secret))
	w.inSync(p)
}

// Pods without the label are not asked: see what to do.
func TestPodsWithoutLabel(t *testing.T) {
	w := newWorld(t)
	w.run()
	d := w.deployment("cnf-1", "cnf-1", 1)
	delete(d.Spec.Template.Labels, sdewan.PurposeLabel)
	w.create(d)
	p := w.policy("cnf-1", "p")
	w.create(p)
	require.Contains(t, w.waits(p, NoPods), "set it in its template")
}

// A rule that cannot be on the CNF is reported, and what it was before stays.
func TestInvalid(t *testing.T) {
	w := newWorld(t)
	w.run()
	pod := w.cnf("cnf-1", 1)[0]
	p := w.policy("cnf-1", "p")
	w.create(p)
	w.inSync(p)
	p.Spec.Members[1].Network = "wan9"
	require.NoError(t, w.client.Update(t.Context(), p))
	require.Contains(t, w.waits(p, Invalid), `not attached to network "wan9"`)
	require.Contains(t, w.event(Invalid), "wan9")
	w.never(tenMinutes, func() error {
		if len(pod.EffectiveNames(rest.Policies)) != 1 {
			return fmt.Errorf("the policy is gone")
		}
		return nil
	})
	p.Spec.Members[1].Network = "lan"
	require.NoError(t, w.client.Update(t.Context(), p))
	w.inSync(p)
}

// Two rules that would have the same name on a CNF: the older one counts, until it is deleted.
func TestNameTaken(t *testing.T) {
	w := newWorld(t)
	w.run()
	pod := w.cnf("cnf-1", 1)[0]
	snat := &batch.FirewallSNAT{ObjectMeta: w.meta("cnf-1", "x")}
	snat.Spec.Dest = "wan"
	snat.Spec.SrcDIP = "192.0.2.1"
	zone := &batch.FirewallZone{
		ObjectMeta: w.meta("cnf-1", "wan"),
		Spec:       batch.FirewallZoneSpec{Network: []batch.NetworkName{"wan1"}},
	}
	w.create(zone)
	w.create(snat)
	w.inSync(zone, snat)
	time.Sleep(1100 * time.Millisecond) // so that it is the older one
	dnat := &batch.FirewallDNAT{ObjectMeta: w.meta("cnf-1", "x")}
	dnat.Spec.Src = "wan"
	dnat.Spec.DestIP = "10.0.0.1"
	w.create(dnat)
	require.Contains(t, w.waits(dnat, NameTaken), "FirewallSNAT x")
	w.delete(snat)
	w.gone(snat)
	w.inSync(dnat)
	require.Equal(t, "DNAT", pod.Field(rest.Redirects, "x", "target"))
	require.Equal(t, []string{"x"}, pod.Names(rest.Redirects))
}

// What no rule stands for is removed, except what the administrator keeps.
func TestUnmanaged(t *testing.T) {
	w := newWorld(t)
	d := w.deployment("cnf-1", "cnf-1", 1)
	d.Annotations = map[string]string{UnmanagedAnnotation: "firewall/rules/Allow-*, nat/nats/*, what/is/this, x"}
	w.create(d)
	var pod *pod
	w.eventually(func() error {
		if pods := w.pods("cnf-1"); len(pods) == 1 {
			pod = pods[0]
			return nil
		}
		return fmt.Errorf("no pod")
	})
	pod.Put(rest.FirewallRules, &rest.FirewallRule{Name: "Allow-DHCP"})
	pod.Put(rest.FirewallRules, &rest.FirewallRule{Name: "Reject-all"})
	pod.Put(rest.NATs, &rest.NAT{Name: "n"})
	pod.Put(rest.Routes, &rest.Route{Name: "r"})
	pod.Put(rest.Applications, &rest.Application{Name: "a"})
	w.run()
	w.holds(pod, rest.FirewallRules, "Allow-DHCP")
	require.Equal(t, []string{"n"}, pod.Names(rest.NATs))
	w.holds(pod, rest.Routes)
	require.Equal(t, []string{"a"}, pod.Names(rest.Applications), "no kind of rules is about applications")
	require.Contains(t, w.event(ByHand), "route/routes/r")
	require.Contains(t, w.event("InvalidAnnotation"), "module/collection/name")
}

// A rule is in sync when the kernel of a CNF that reports so does what the rule says, and not as
// soon as the CNF has the object.
func TestEffectOnInSync(t *testing.T) {
	w := newWorld(t)
	p := w.cnf("cnf-1", 1)[0]
	var effect atomic.Value
	answer := func(text string) { effect.Store(text) }
	answer(
		`"applied":true,"no_effect":[{"collection":"mwan3/policies","name":"p","reason":"it has no member that is an uplink"},{"collection":"mwan3/policies","name":"q","minor":true}]`)
	p.Answer(func(wr http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != rest.StatusPath("effect") {
			return false
		}
		fmt.Fprintf(wr, `{"name":"effect","status":{%s}}`, effect.Load())
		return true
	})
	bad := w.policy("cnf-1", "p")
	good := w.policy("cnf-1", "q")
	w.create(bad)
	w.create(good)
	w.run()
	require.Contains(t, w.waits(bad, NoEffect), "pod "+p.name+": it has no member that is an uplink")
	w.inSync(good)
	answer(
		`"applied":true,"no_effect":[{"collection":"mwan3/policies","name":"p","reason":"it has no member that is an uplink"}],"no_effect_count":2`)
	require.Contains(t, w.waits(good, NoEffect), "1 more objects without effect than it can list, and this may be one")
	answer(`"applied":true,"no_effect":[]`)
	w.inSync(bad, good)
	answer(`"applied":false,"no_effect":[]`)
	third := w.policy("cnf-1", "r")
	w.create(third)
	for _, x := range []sdewan.Rule{bad, good, third} {
		require.Contains(t, w.waits(x, NotInKernel), "see the log of the pod")
	}
	answer(`"applied":true`)
	w.inSync(bad, good, third)
}
