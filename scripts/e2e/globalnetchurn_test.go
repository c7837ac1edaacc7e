//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/kube"
	"subctl/internal/measure"
)

// api returns a client of a cluster: kubectl is too slow for many objects.
func api(t *testing.T, cluster string) client.WithWatch {
	t.Helper()
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: filepath.Join(root, "kubeconfigs/lab.yaml")},
		&clientcmd.ConfigOverrides{CurrentContext: cluster}).ClientConfig()
	require.NoError(t, err)
	config.QPS = -1
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return c
}

// holders has the objects that have had each address.
type holders map[string]map[types.UID]string

// watchHolders notes which objects have each address, however short, until stop is called.
func watchHolders(t *testing.T, c client.WithWatch) (stop func() holders) {
	t.Helper()
	all := submarinerv1.GlobalIngressIPList{}
	require.NoError(t, c.List(t.Context(), &all))
	h := holders{}
	note := func(o *submarinerv1.GlobalIngressIP) {
		if ip := o.Status.AllocatedIP; ip != "" {
			if h[ip] == nil {
				h[ip] = map[types.UID]string{}
			}
			h[ip][o.UID] = o.Namespace + "/" + o.Name
		}
	}
	for i := range all.Items {
		note(&all.Items[i])
	}
	w, err := c.Watch(t.Context(), &submarinerv1.GlobalIngressIPList{},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: all.ResourceVersion}})
	require.NoError(t, err)
	var stopped atomic.Bool
	ended := make(chan bool, 1) // whether it ended because it was stopped
	go func() {
		for e := range w.ResultChan() {
			if o, is := e.Object.(*submarinerv1.GlobalIngressIP); is {
				note(o)
			}
		}
		ended <- stopped.Load()
	}()
	return func() holders {
		t.Helper()
		stopped.Store(true)
		w.Stop()
		require.True(t, <-ended, "the watch of GlobalIngressIPs has ended too early")
		return h
	}
}

var request = regexp.MustCompile(`(?m) ([0-9.]+):\d+ /(churn-\d+)$`)

// globalChurn creates and deletes pods with addresses of their own and exported Services, while
// streams pass the gateway, which lose nothing. No address belongs to two of them: neither by what
// the objects say, nor by what servers in another cluster have seen.
func globalChurn(t *testing.T) {
	const (
		perSecond, seconds = 55, 60 // changes
		stay               = 50     // the number of Services that are there at a time
		podOf              = 20     // one pod for so many Services: it costs the nodes of the lab as much as they do
	)
	c := api(t, "cluster1")
	server := "http://" + globalIP(t, "cluster2", "web")
	stop := watchHolders(t, c)
	since := time.Now()
	made := 0
	ran := 0 // Services and pods, in all runs
	var rate float64
	lossless(t, 1, func() map[string]lost {
		out := startStream(t, podOn(t, "cluster1", "web", worker(t, "cluster1")), service(t, "cluster2"))
		last := overlapping()[len(overlapping())-1]
		in := startStream(t, podOn(t, last, "web", worker(t, last)), service(t, "cluster1"))
		enough := made + stay // the names of a run that is repeated are new: pods of the run before may still be there
		var mu sync.Mutex
		var there [][]client.Object
		var all sync.WaitGroup
		var changes atomic.Int64
		atOnce := make(chan bool, 16) // requests to a busy API server take long
		const each = (4*podOf + 2) * time.Second / (podOf * perSecond)
		began := time.Now()
		for next := began; made < enough || time.Since(began) < seconds*time.Second; next = next.Add(each) {
			if made == enough { // from now on, as many go as come
				began = time.Now()
				next = time.Now()
				changes.Store(0)
			}
			time.Sleep(time.Until(next))
			made++
			meta := metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("churn-%d", made)}
			now := []client.Object{
				&corev1.Service{
					ObjectMeta: meta,
					Spec: corev1.ServiceSpec{
						Selector: map[string]string{"app": "web"},
						Ports:    []corev1.ServicePort{{Port: 80}},
					},
				},
				&mcsv1alpha1.ServiceExport{ObjectMeta: meta},
			}
			if made%podOf == 0 {
				ran++
				meta.Annotations = map[string]string{submarinerv1.OwnGlobalIPAnnotation: submarinerv1.OwnGlobalIP}
				now = append(now, &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(0)),
					Containers: []corev1.Container{
						{
							Name:            "get",
							Image:           "lab.local/labapp:1",
							ImagePullPolicy: corev1.PullNever,
							Args: []string{
								"get",
								server + "/" + meta.Name,
								"-n",
								"1000",
								"--timeout",
								"5s",
								"--pause",
								"100ms",
							},
						},
					},
				}})
			}
			atOnce <- true
			all.Go(func() {
				defer func() { <-atOnce }()
				for _, o := range now {
					assert.NoError(t, c.Create(t.Context(), o))
					changes.Add(1)
				}
				mu.Lock()
				var old []client.Object
				if there = append(there, now); len(there) > stay {
					old = there[0]
					there = there[1:]
				}
				mu.Unlock()
				for _, o := range old {
					assert.NoError(t, c.Delete(t.Context(), o))
					changes.Add(1)
				}
			})
		}
		all.Wait()
		rate = float64(changes.Load()) / time.Since(began).Seconds()
		for _, objs := range there {
			for _, o := range objs {
				require.NoError(t, client.IgnoreNotFound(c.Delete(t.Context(), o)))
			}
		}
		return map[string]lost{"out": out.stop(t), "in": in.stop(t)}
	})
	had := stop()
	for ip, of := range had {
		require.Len(t, of, 1, "%s was allocated twice: %v", ip, of)
	}
	var shared submarinerv1.ClusterGlobalEgressIPList
	require.NoError(t, c.List(t.Context(), &shared))
	seen := map[string]string{} // the pod, by the address that servers saw
	for _, o := range shared.Items {
		for _, ip := range o.Status.AllocatedIPs {
			seen[ip] = "" // of pods that have no address of their own yet
		}
	}
	own := 0
	network := globalNetwork(t, "cluster1")
	for _, p := range pods(t, "cluster2", "web") {
		logs := kubectl(t, "cluster2", "logs", p.name, "--since-time", since.UTC().Format(time.RFC3339))
		for _, m := range request.FindAllStringSubmatch(logs, -1) {
			require.True(t, network.Contains(netip.MustParseAddr(m[1])), m[0])
			switch by, known := seen[m[1]]; {
			case !known:
				own++
				seen[m[1]] = m[2]
			case by != "":
				require.Equal(t, by, m[2], "servers saw %s of both pods", m[1])
			}
		}
	}
	require.Greater(t, own, ran/2, "servers saw the own addresses of too few of the %d pods", ran)
	t.Logf(
		"%d Services and exports, and %d pods, came and went: %d addresses were allocated; servers saw %d pods with addresses of their own",
		made, ran, len(had), own)
	measure.Record(
		t,
		measure.AtLeast(
			"globalnet: Services, exports and pods that come and go while a stream loses nothing and no address is allocated twice",
			measure.Values{rate}, 50, "changes/s"),
	)
	eventually(t, 20*time.Second, func() error {
		if out := kubectl(t, "cluster1", "get", "globalingressips.submariner.io", "-o", "name"); strings.Contains(out,
			"churn-") {
			return fmt.Errorf("still there: %s", out)
		}
		return nil
	})
}

// globalManyConnections opens 300,000 connections from pods of a cluster to one Service, and looks
// how many show globalnet counts.
func globalManyConnections(t *testing.T) {
	const replicas, each = 40, 7500
	const table, idle = "/proc/sys/net/netfilter/nf_conntrack_max", "/proc/sys/net/netfilter/nf_conntrack_udp_timeout"
	was, err := os.ReadFile(table)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(table, []byte("1000000"), 0o644)) // of all nodes of the lab
	t.Cleanup(func() { _ = os.WriteFile(table, was, 0o644) })         // the machine of the lab is not kept
	const from, to = "cluster3", "cluster1"
	for _, n := range append(nodes(from), nodes(to)...) {
		on(t, n, "cp "+idle+" /tmp/udp-timeout && echo 600 >"+idle)
		t.Cleanup(func() { on(t, n, "cat /tmp/udp-timeout >"+idle) })
	}
	kubectl(t, from, "patch", "clusterglobalegressips.submariner.io", "cluster-egress.submariner.io", "--type=merge",
		"-p", `{"spec":{"numGlobalIPs":20}}`)
	target := globalIP(t, to, "web") + ":7"
	apply(
		t,
		from,
		fmt.Sprintf(
			`{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "many", "namespace": "default"}, "spec": {"replicas": %d, "selector": {"matchLabels": {"app": "many"}},
		"template": {"metadata": {"labels": {"app": "many"}}, "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "sleep", "image": "lab.local/labapp:1", "imagePullPolicy": "Never", "args": ["sleep"]}]}}}}`,
			replicas,
		),
	)
	kubectl(t, from, "rollout", "status", "deployment/many", "--timeout=300s")
	eventually(t, 20*time.Second, func() error {
		if held := kubectl(t, from, "get", "clusterglobalegressips.submariner.io", "cluster-egress.submariner.io", "-o",
			"jsonpath={.status.allocatedIPs}"); strings.Count(held, ",") != 19 {
			return fmt.Errorf("%s has the shared addresses %s", from, held)
		}
		return nil
	})
	began := time.Now()
	sent := 0
	answered := 0
	var mutex sync.Mutex
	var all sync.WaitGroup
	turn := make(chan bool, 4) // at a time
	for _, p := range pods(t, from, "many") {
		all.Go(func() {
			turn <- true
			defer func() { <-turn }()
			out, err := p.try("ports", target, "--first", "10000", "--count", fmt.Sprint(each), "--timeout", "2s")
			var is struct{ Sent, Answered int }
			if err == nil {
				err = json.Unmarshal([]byte(out), &is)
			}
			mutex.Lock()
			defer mutex.Unlock()
			if err != nil {
				t.Errorf("%s: %v: %s", p.name, err, out)
			}
			sent = sent + is.Sent
			answered = answered + is.Answered
		})
	}
	all.Wait()
	t.Logf("%d connections from the shared addresses of %s to one Service in %.0f s", answered, from,
		time.Since(began).Seconds())
	require.Equal(t, replicas*each, sent)
	require.Equal(t, sent, answered)
	eventually(t, 30*time.Second, func() error {
		out, _ := stdout(t, "subctl", "show", "globalnet", "--context", from, "-o", "json")
		var rows []struct {
			Egress []struct {
				Connections int
				Busiest     string
			}
		}
		require.NoError(t, json.Unmarshal([]byte(out), &rows), out)
		counted := 0
		for _, e := range rows[0].Egress {
			if e.Busiest == "udp "+target {
				counted += e.Connections
			}
		}
		if counted < answered {
			return fmt.Errorf("show globalnet counts %d connections of %d: %s", counted, answered, out)
		}
		return nil
	})
	kubectl(t, from, "delete", "deployment", "many")
}
