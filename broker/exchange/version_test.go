package exchange

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/kubetest"
)

// liar is a client of an API server that has once answered with a resource version which no API
// server has.
type liar struct {
	client.WithWatch
	version string
	shown   atomic.Int64
}

func (l *liar) Watch(
	ctx context.Context,
	list client.ObjectList,
	options ...client.ListOption,
) (watch.Interface, error) {
	if l.shown.Add(1) > 1 {
		return l.WithWatch.Watch(ctx, list, options...)
	}
	w := watch.NewFake()
	go func() {
		w.Action(watch.Bookmark, &submarinerv1.Endpoint{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: l.version, Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}})
		w.Stop()
	}()
	return w, nil
}

// A broker that has once shown a resource version that does not exist is read again as soon as it
// is honest.
func TestHostileResourceVersions(t *testing.T) {
	server := kubetest.Shared(t)
	server.InstallCRDs(t)
	for _, version := range []string{"abc", "99999999999999"} {
		for _, polled := range []bool{false, true} {
			real, hangUp, err := watchClient(server.Config(), Kinds())
			require.NoError(t, err)
			t.Cleanup(hangUp)
			m := testMirror(t, &submarinerv1.Endpoint{}, 100)
			m.namespace = server.Namespace(t, "hub")
			m.client = &liar{WithWatch: real.WithWatch, version: version}
			ctx, stop := context.WithCancel(t.Context())
			if polled {
				i := slices.IndexFunc(Kinds(), func(k Kind) bool { return k.Name == m.kind.Name })
				m.lists = real.lists[i]
				m.poll(ctx)
				m.version = version
			} else {
				go m.run(ctx)
				require.Eventually(t, func() bool { _, known, _ := m.read(); return known }, 10*time.Second,
					10*time.Millisecond)
			}
			e := westEndpoint(t, 1, "")
			e.ObjectMeta = metav1.ObjectMeta{Name: e.Name, Namespace: m.namespace}
			e.Spec.Backend = "vxlan"
			e.Spec.PrivateIP = "192.0.2.1"
			e.Spec.Hostname = "gw"
			require.NoError(t, real.Create(ctx, e))
			seen := false
			for end := time.Now().Add(
				30 * time.Second); !seen && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				if polled {
					m.poll(ctx)
				}
				objects, _, _ := m.read()
				seen = len(objects) == 1
			}
			_, _, err = m.read()
			t.Log(version, polled, seen, err)
			if !seen {
				t.Errorf("%s, polled %v: %v", version, polled, err)
			}
			stop()
		}
	}
}
