package exchange

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
)

// This file follows the grant of this cluster. The administrator adds the cluster to clustersets,
// and removes it, without access to it: by a new grant on the service account of the cluster on the
// broker. The cluster takes over a grant that is newer than its own, if the administrator has
// signed it for the cluster's key, and remembers it: so neither the broker nor a restart takes it
// back.

// renewal watches the service account of this cluster on the broker.
type renewal struct {
	client  client.WithWatch
	account types.NamespacedName
	changed func()
	// announced is called with a clusterset in which the administrator has changed something.
	announced func(set string)

	mu    sync.Mutex
	token string // the grant; empty if there is none
	known bool   // read at least once
	err   error  // why it is not watched now
	asked time.Time
}

// run watches until ctx is done.
func (r *renewal) run(ctx context.Context) {
	options := func(o metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{
			Namespace:     r.account.Namespace,
			FieldSelector: fields.OneTermEqualSelector("metadata.name", r.account.Name),
			Raw:           &o,
		}
	}
	discard := logr.Discard() // errors are in r.err
	const most = 64           // accounts: it is one
	seen := pages{most: most}
	cache.NewReflectorWithOptions(
		&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				r.note(nil, true)
				list := &corev1.ServiceAccountList{}
				err := anew(r.client.List(ctx, list, options(o)), o.ResourceVersion)
				if err == nil {
					err = seen.add(o, list)
				}
				r.note(err, false)
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				r.note(nil, true)
				w, err := startedWatch(r.client.Watch(ctx, &corev1.ServiceAccountList{}, options(o)))
				err = anew(err, o.ResourceVersion)
				r.note(err, false)
				if err != nil {
					return w, err
				}
				return endedWatch(w, o, most, func(err error) { r.note(err, false) }), nil
			},
		},
		&corev1.ServiceAccount{},
		r,
		cache.ReflectorOptions{Name: "grant", Logger: &discard, Backoff: watchBackoff()},
	).RunWithContext(logr.NewContext(ctx, discard))
}

// note records that a request is sent, or what became of it.
func (r *renewal) note(err error, sent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sent {
		r.asked = time.Now()
		return
	}
	r.err = err
	r.asked = time.Time{}
}

// read returns the grant on the broker, and whether it was read at least once.
func (r *renewal) read() (token string, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.token, r.known
}

// fault returns why the account is not watched now; nil if it is.
func (r *renewal) fault() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil && !r.asked.IsZero() && time.Since(r.asked) > answerTimeout {
		return errNoAnswer
	}
	return r.err
}

// The methods of cache.ReflectorStore.

// Add implements cache.ReflectorStore.
func (r *renewal) Add(obj any) error { return r.Update(obj) }

// Update implements cache.ReflectorStore.
func (r *renewal) Update(obj any) error { return r.Replace([]any{obj}, "") }

// Delete implements cache.ReflectorStore. The grant stays in force: the cluster was revoked, and
// has no rights any more, or is about to join again.
func (r *renewal) Delete(any) error { return nil }

// Replace implements cache.ReflectorStore.
func (r *renewal) Replace(list []any, _ string) error {
	r.mu.Lock()
	r.known = true
	announced := ""
	for _, obj := range list {
		annotations := obj.(*corev1.ServiceAccount).Annotations
		r.token = annotations[submarinerv1.GrantAnnotation]
		announced, _, _ = strings.Cut(annotations[submarinerv1.ChangedAnnotation], " ")
	}
	r.mu.Unlock()
	r.changed()
	if announced != "" {
		r.announced(announced)
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (r *renewal) Resync() error { return nil }

// renew remembers a grant for cluster id that is valid, and newer than those known. It reports
// whether there is one.
func (m *Memory) renew(i Identity, id, token string) bool {
	offered := i
	offered.Grant = token
	if !newerGrant(i.Administrator, token, m.newest(i, id).Grant) {
		return false
	}
	if _, err := offered.check(id); err != nil {
		return false
	}
	if m.Administrator != i.Administrator {
		*m = Memory{Administrator: i.Administrator}
	}
	m.Grant = token
	return true
}

// newest returns the identity with the newest grant.
func (m *Memory) newest(i Identity, id string) Identity {
	if !newerGrant(i.Administrator, m.Grant, i.Grant) {
		return i
	}
	remembered := i
	remembered.Grant = m.Grant
	if _, err := remembered.check(id); err != nil {
		return i
	}
	return remembered
}

// newerGrant reports whether a grant is newer than another one. A grant that is not valid is older
// than all others.
func newerGrant(administrator trust.PublicKey, token, than string) bool {
	if token == "" || token == than {
		return false
	}
	g, err := administrator.Grant(trust.Bare(token))
	if err != nil {
		return false
	}
	before, err := administrator.Grant(trust.Bare(than))
	return err != nil || g.Compare(before) > 0
}

// Newest returns the identity of cluster id with its newest grant: the administrator may have
// renewed it since the cluster has joined. stored is the ConfigMap with the Memory of the cluster,
// or nil.
func (i Identity) Newest(stored *corev1.ConfigMap, id string) Identity {
	var m Memory
	if stored != nil && json.Unmarshal([]byte(stored.Data[memoryKey]), &m) != nil {
		return i
	}
	return m.newest(i, id)
}

// Sets returns the clustersets that the grant of cluster id names; nil if it is not valid.
func (i Identity) Sets(id string) []string {
	g, err := i.check(id)
	if err != nil {
		return nil
	}
	return g.Sets
}

// Renew takes over a grant of cluster id that is on the broker, if it is valid, and newer.
func (i *Identity) Renew(id, token string) {
	var m Memory
	if m.renew(*i, id, token) {
		i.Grant = m.Grant
	}
}
