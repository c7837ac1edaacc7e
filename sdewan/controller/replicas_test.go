package controller

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	kuberest "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan/rest"
)

// replica is one of several controllers, of which the one that holds the Lease works.
type replica struct {
	stop context.CancelFunc
	done chan error
	cut  atomic.Bool // off the API server
}

// replica starts a controller. It never gives its Lease back, as one that is killed does not.
func (w *world) replica() *replica {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	r := &replica{stop: cancel, done: make(chan error, 1)}
	cuttable := func(c *kuberest.Config) *kuberest.Config {
		c = kuberest.CopyConfig(c)
		c.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				if r.cut.Load() {
					return nil, errors.New("cut off")
				}
				return next.RoundTrip(req)
			})
		})
		return c
	}
	log := slog.New(slog.NewTextHandler(w.log, nil))
	o := managerOptions(w, log, w.namespace)
	o.LeaderElection = true
	o.LeaderElectionID = "replicas"
	// a lock of its own, as a manager never stops the events of a LeaderElectionConfig
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, w.namespace, o.LeaderElectionID,
		resourcelock.ResourceLockConfig{Identity: rand.Text()}, cuttable(w.server.Config()), 2*time.Second)
	require.NoError(w, err)
	o.LeaderElectionResourceLockInterface = lock
	o.LeaseDuration = new(3 * time.Second)
	o.RenewDeadline = new(2 * time.Second)
	o.RetryPeriod = new(200 * time.Millisecond)
	o.GracefulShutdownTimeout = new(time.Duration(0))
	mgr, err := ctrl.NewManager(Config(cuttable(w.config)), o)
	require.NoError(w, err)
	require.NoError(w,
		Add(w.Context(), mgr, Options{Log: log, Port: port, RetryFrom: 50 * time.Millisecond, RetryUntil: time.Second}))
	go func() { r.done <- mgr.Start(ctx) }()
	w.Cleanup(cancel)
	return r
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// leader returns which controller holds the Lease.
func (w *world) leader() (name string) {
	w.Helper()
	w.eventually(func() error {
		lease := &coordinationv1.Lease{}
		if err := w.client.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: "replicas"},
			lease); err != nil {
			return err
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return errors.New("nobody has the Lease")
		}
		name = *lease.Spec.HolderIdentity
		return nil
	})
	return name
}

// The controller that works is killed, or loses the API server, while it writes many rules to slow
// CNFs. Another one takes over, and finishes the work: each pod has each rule once, in order, and
// in effect.
func TestReplicas(t *testing.T) {
	for name, end := range map[string]func(*replica){
		"killed": func(r *replica) {
			r.cut.Store(true)
			r.stop()
		},
		"without the API server": func(r *replica) { r.cut.Store(true) },
		"told to stop":           func(r *replica) { r.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			pods := w.cnf("cnf-1", 2)
			var twice atomic.Int64
			for _, p := range pods {
				var mu sync.Mutex
				has := map[string]bool{} // by path, also of what is about to be stored
				p.Answer(func(_ http.ResponseWriter, r *http.Request) bool {
					if r.Method == http.MethodGet {
						return false
					}
					body, _ := io.ReadAll(r.Body)
					r.Body = io.NopCloser(bytes.NewReader(body))
					var o struct{ Name string }
					_ = json.Unmarshal(body, &o)
					mu.Lock()
					switch r.Method {
					case http.MethodPost:
						if has[r.URL.Path+"/"+o.Name] {
							twice.Add(1)
						}
						has[r.URL.Path+"/"+o.Name] = o.Name != ""
					case http.MethodDelete:
						delete(has, r.URL.Path)
					}
					mu.Unlock()
					time.Sleep(40 * time.Millisecond)
					return false
				})
			}
			first := w.replica()
			leads := w.leader()
			w.replica()
			w.create(w.policy("cnf-1", "p"))
			rules := make([]*batch.Mwan3Rule, 60)
			for i := range rules {
				rules[i] = w.rule("cnf-1", fmt.Sprintf("r%02d", i), "p", strconv.Itoa(1+i))
				w.create(rules[i])
			}
			w.eventually(func() error {
				if n := len(pods[0].Names(rest.Rules)); n < 20 {
					return fmt.Errorf("%d rules", n)
				}
				return nil
			})
			end(first)
			require.Less(t, len(pods[0].Names(rest.Rules)), len(rules), "it has ended in the midst of its work")
			w.delete(rules[0])
			w.delete(rules[59])
			w.eventually(func() error {
				fresh := w.rule("cnf-1", rules[30].Name, "", "")
				if err := w.get(fresh); err != nil {
					return err
				}
				set(&fresh.Spec.DestPort, "3000")
				return w.client.Update(t.Context(), fresh)
			})
			w.create(w.rule("cnf-1", "zz", "p", "4000"))
			w.gone(rules[0])
			w.gone(rules[59])
			w.converged("cnf-1")
			require.NotEqual(t, leads, w.leader())
			require.Zero(t, twice.Load(), "objects were created that the CNF had already")
			select {
			case <-first.done:
			case <-time.After(patience):
				t.Fatal("the first one does not end")
			}
			for _, p := range pods {
				p.Writes()
			}
			time.Sleep(time.Second)
			for _, p := range pods {
				require.Empty(t, p.Writes(), "nothing is left to do")
			}
		})
	}
}
