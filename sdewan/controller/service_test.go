package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
	"subctl/sdewan/controller/expose"
	"subctl/sdewan/controller/fair"
	"subctl/sdewan/rest"
)

// service creates a Service with ports 80/TCP and 53/UDP.
func (w *world) service(name string) *corev1.Service {
	w.Helper()
	s := &corev1.Service{ObjectMeta: w.named(name), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
		{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}, {Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP},
	}}}
	w.create(s)
	return s
}

func (w *world) cnfService(name, fullname, port, dport string) *batch.CNFService {
	return &batch.CNFService{
		ObjectMeta: w.meta("cnf-1", name),
		Spec:       batch.CNFServiceSpec{FullName: fullname, Port: batch.Port(port), DPort: batch.Port(dport)},
	}
}

// The port of the CNF leads to the dport of the Service, whose address comes from the API server
// and is followed.
func TestCNFService(t *testing.T) {
	w := newWorld(t)
	w.run()
	pod := w.cnf("cnf-1", 1)[0]
	x := w.cnfService("x", "web."+w.namespace+".svc.cluster.local", "2288", "80")
	udp := w.cnfService("udp", "web", "2253", "53")
	w.create(x)
	w.create(udp)
	require.Contains(t, w.waits(x, Invalid), "there is no Service "+w.namespace+"/web")
	s := w.service("web")
	w.inSync(x, udp)
	field := func(rule, f string) any { return pod.Field(rest.NATs, rule, f) }
	for f, want := range map[string]string{
		"target":    "DNAT",
		"proto":     "tcp",
		"src_dport": "2288",
		"dest_port": "80",
		"dest_ip":   s.Spec.ClusterIP,
	} {
		require.Equal(t, want, field("x", f), f)
	}
	require.Equal(t, "udp", field("udp", "proto"))
	w.delete(s)
	w.waits(x, Invalid)
	require.Equal(t, s.Spec.ClusterIP, field("x", "dest_ip"), "what it was stays")
	var again *corev1.Service
	for again == nil || again.Spec.ClusterIP == s.Spec.ClusterIP {
		if again != nil {
			w.delete(again)
		}
		again = w.service("web")
	}
	w.inSync(x)
	w.eventually(func() error {
		if field("x", "dest_ip") != again.Spec.ClusterIP {
			return fmt.Errorf("%v", field("x", "dest_ip"))
		}
		return nil
	})
	x.Spec.DPort = "81"
	require.NoError(t, w.client.Update(t.Context(), x))
	require.Contains(t, w.waits(x, Invalid), "has no port 81, but 80/tcp, 53/udp")
	w.delete(x)
	w.gone(x)
	require.Equal(t, []string{"udp"}, pod.Names(rest.NATs))
}

// Other names are looked up in DNS, again and again. Answers that would lead into the CNF, or
// anywhere, do not count.
func TestCNFServiceByDNS(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	now := time.Now()
	answer := []string{"127.0.0.1", "224.0.0.1", "0.0.0.0", "::1"}
	fail := error(nil)
	set := func(err error, to ...string) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(dnsAgain)
		answer = to
		fail = err
	}
	w.runWith(Options{
		Resync: 100 * time.Millisecond,
		Resolve: func(_ context.Context, name string) (out []netip.Addr, err error) {
			mu.Lock()
			defer mu.Unlock()
			if name != "www.example.com" {
				return nil, errors.New("no such host")
			}
			for _, a := range answer {
				out = append(out, netip.MustParseAddr(a))
			}
			return out, fail
		},
		now: func() time.Time { mu.Lock(); defer mu.Unlock(); return now },
	})
	pod := w.cnf("cnf-1", 1)[0]
	x := w.cnfService("x", "www.example.com", "1", "2")
	w.create(x)
	require.Contains(t, w.waits(x, Invalid), "no IPv4 address to which a CNF can lead")
	leads := func(to string) {
		t.Helper()
		w.eventually(func() error {
			if is := pod.Field(rest.NATs, "x", "dest_ip"); is != to {
				return fmt.Errorf("%v, not %s", is, to)
			}
			return nil
		})
	}
	set(nil, "192.0.2.9", "192.0.2.10")
	w.inSync(x)
	leads("192.0.2.9")
	set(nil, "192.0.2.10", "192.0.2.9") // round robin
	leads("192.0.2.9")
	set(nil, "192.0.2.11")
	leads("192.0.2.11")
	set(errors.New("timeout"))
	w.never(500*time.Millisecond, func() error { leads("192.0.2.11"); return nil })
	w.inSync(x)
}

// A Service that both it and the CNF want to be exposed becomes FirewallDNAT objects, which go when
// it goes.
func TestExposed(t *testing.T) {
	w := newWorld(t)
	stop := w.run()
	pod := w.cnf("cnf-1", 1)[0]
	zone := &batch.FirewallZone{
		ObjectMeta: w.meta("cnf-1", "wan"),
		Spec:       batch.FirewallZoneSpec{Network: []batch.NetworkName{"wan1"}},
	}
	w.create(zone)
	s := w.service("web")
	annotate := func(value string) {
		t.Helper()
		require.NoError(t, retryConflict(func() error {
			require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(s), s))
			s.Annotations = map[string]string{expose.Annotation: value}
			if value == "" {
				s.Annotations = nil
			}
			return w.client.Update(t.Context(), s)
		}))
	}
	annotate(`{"purpose":"cnf-1","zone":"wan","ports":[{"port":80,"as":8080}]}`)
	require.Contains(t, w.event("NotExposed"), "does not let Services be reached from zone wan")
	require.Empty(t, pod.Names(rest.Redirects))
	require.NoError(t, retryConflict(func() error {
		d := &appsv1.Deployment{}
		require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "cnf-1"}, d))
		d.Annotations = map[string]string{expose.ZonesAnnotation: "lan, wan"}
		return w.client.Update(t.Context(), d)
	}))
	w.holds(pod, rest.Redirects, "service-web-8080-tcp")
	r := &batch.FirewallDNAT{ObjectMeta: w.named("service-web-8080-tcp")}
	w.inSync(r)
	require.Equal(t, "k8s-service", r.Labels[sdewan.BucketLabel])
	require.Equal(t, s.Spec.ClusterIP, pod.Field(rest.Redirects, r.Name, "dest_ip"))
	require.Equal(t, "80", pod.Field(rest.Redirects, r.Name, "dest_port"))
	require.Equal(t, "8080", pod.Field(rest.Redirects, r.Name, "src_dport"))
	second := w.service("web-too")
	second.Annotations = map[string]string{
		expose.Annotation: `{"purpose":"cnf-1","zone":"wan","ports":[{"port":80,"as":8080}]}`,
	}
	require.NoError(t, w.client.Update(t.Context(), second))
	require.Contains(t, w.event("PortTaken"),
		`older rules lead ports of the CNF to other Services already: choose other ports with "as" in place of 8080/tcp (Service web)`)
	w.delete(second)
	w.gone(&batch.FirewallDNAT{ObjectMeta: w.named("service-web-too-8080-tcp")})
	annotate(`{"purpose":"cnf-1","zone":"wan"}`)
	w.eventually(func() error {
		if has := pod.EffectiveNames(rest.Redirects); len(has) != 2 {
			return fmt.Errorf("%q", has)
		}
		return nil
	})
	w.gone(r)
	// The object is the controller's: a change of it, or its deletion, does not last.
	mine := &batch.FirewallDNAT{ObjectMeta: w.named("service-web-53-udp")}
	w.inSync(mine)
	mine.Spec.DestPort = "54"
	require.NoError(t, w.client.Update(t.Context(), mine))
	w.eventually(func() error {
		if err := w.get(mine); err != nil || mine.Spec.DestPort != "53" {
			return fmt.Errorf("%v (%w)", mine.Spec, err)
		}
		return nil
	})
	// A user who makes it his, or has an object with this name, learns of it; the controller makes
	// it again when the name is free.
	require.NoError(t, retryConflict(func() error {
		require.NoError(t, w.get(mine))
		mine.Labels = map[string]string{sdewan.PurposeLabel: "cnf-1"}
		mine.OwnerReferences = nil
		return w.client.Update(t.Context(), mine)
	}))
	w.eventually(func() error {
		// the Event has the text of the first one
		if !strings.Contains(w.log.String(),
			"FirewallDNAT service-web-53-udp exists, and is not the controller's: rename it") {
			return errors.New("not noticed")
		}
		return nil
	})
	w.delete(mine)
	w.eventually(func() error {
		mine = &batch.FirewallDNAT{ObjectMeta: w.named("service-web-53-udp")}
		if err := w.get(mine); err != nil || len(mine.OwnerReferences) == 0 {
			return fmt.Errorf("%v (%w)", mine.OwnerReferences, err)
		}
		return nil
	})
	w.inSync(mine)
	// What is left when the controller was down goes at its start.
	stop()
	annotate("")
	foreign := &batch.FirewallDNAT{ObjectMeta: w.meta("cnf-1", "mine")}
	foreign.Spec.Src = "wan"
	foreign.Spec.DestIP = "10.0.0.1"
	w.create(foreign)
	w.run()
	w.holds(pod, rest.Redirects, "mine")
	w.gone(mine)
}

// The Services of one namespace do not take all workers.
func TestHostileExposers(t *testing.T) {
	q := fair.NewRequestQueue(exposers)
	for i := range 2 * exposers {
		q.Add(requestFor("a", fmt.Sprint("web", i)))
	}
	for range exposers / 2 {
		_, _ = q.Get()
	}
	q.Add(requestFor("b", "web"))
	next, _ := q.Get()
	require.Equal(t, requestFor("b", "web"), next)
	require.False(t, q.Ready())
}

// What CNFs do is in an object for each CNF, which goes with it.
func TestCNFStatus(t *testing.T) {
	w := newWorld(t)
	w.runWith(Options{StatusPeriod: 100 * time.Millisecond})
	pods := w.cnf("cnf-1", 2)
	s := &batch.CNFStatus{ObjectMeta: w.named("cnf-1")}
	w.eventually(func() error {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
			return err
		}
		if len(s.Status.Information) != 2 || s.Status.Information[0].Status == "" ||
			s.Status.Information[1].Status == "" {
			return fmt.Errorf("%+v", s.Status)
		}
		return nil
	})
	i := s.Status.Information[0]
	require.Equal(t, []string{pods[0].name, w.namespace, "cnf-1", pods[0].ip, ""},
		[]string{i.Name, i.Namespace, i.Purpose, i.IP, i.Error})
	var modules []map[string]any
	require.NoError(t, json.Unmarshal([]byte(i.Status), &modules))
	require.Equal(t, "ipsec", modules[0]["name"])
	version := s.ResourceVersion
	w.never(500*time.Millisecond, func() error {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil ||
			s.ResourceVersion != version {
			return fmt.Errorf("written although nothing has changed (%w)", err)
		}
		return nil
	})
	w.setReady(pods[0].name, false)
	w.eventually(func() error {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil ||
			s.Status.Information[0].Error == "" {
			return fmt.Errorf("%+v (%w)", s.Status.Information[0], err)
		}
		return nil
	})
	w.delete(&appsv1.Deployment{ObjectMeta: w.named("cnf-1")})
	w.eventually(func() error {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(s), s); !apierrors.IsNotFound(err) {
			return fmt.Errorf("still there (%w)", err)
		}
		return nil
	})
}

// Under traffic, only counters change: they are written now and then, and what matters at once.
func TestCountersAreWrittenSeldom(t *testing.T) {
	info := func(status string) batch.CNFInformation { return batch.CNFInformation{Name: "a", Status: status} }
	is := `[{"name":"interface","status":[{"name":"net1","status":"UP","received_packets":"7"}]},{"name":"wan","status":{"interfaces":{"age":{"age":1,"status":"online"}}}},{"name":"conntrack","status":[{}]},` +
		`{"name":"neighbour","status":[{"ip":"192.0.2.1","state":"stale"}]},{"name":"ipsec","status":{"remotes":[{"seconds":5,"connections":[{"bytes_in":7}]}]}}]`
	for text, same := range map[string]bool{
		is: true,
		strings.NewReplacer(`"7"`, `"8"`, `"age":1`, `"age":2`, `[{}]`, `"(too long)","count":7`, `stale`, `reachable`,
			`:5`, `:35`, `_in":7`, `_in":8`).Replace(is): true,
		strings.Replace(is, "UP", "DOWN", 1):             false,
		strings.Replace(is, `"online"`, `"offline"`, 1):  false,
		strings.Replace(is, "192.0.2.1", "192.0.2.2", 1): false,
		"": false,
	} {
		require.Equal(t, same, sameButCounters(info(is), info(text)), text)
	}
	require.False(t, sameButCounters(batch.CNFInformation{Error: "x"}, batch.CNFInformation{Error: "y"}))
	now := time.Now()
	c := &statusReconciler{o: Options{now: func() time.Time { return now }}}
	for age, want := range map[time.Duration]bool{0: true, 59 * time.Second: true, time.Minute: false} {
		require.Equal(t, want, c.recent(batch.CNFStatusStatus{AppliedTime: &metav1.Time{Time: now.Add(-age)}}), age)
	}
}
