package agent

import (
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
)

// requests counts the requests of a client that are about objects in a namespace and read nothing.
type requests struct {
	mu sync.Mutex
	n  map[string]int // by method and path in the namespace
}

// of returns config with a client whose requests about a namespace are counted.
func (w *requests) of(config *rest.Config, namespace string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if _, what, in := strings.Cut(r.URL.Path, "/namespaces/"+namespace+"/"); in && r.Method != http.MethodGet {
				w.mu.Lock()
				w.n[r.Method+" "+what]++
				w.mu.Unlock()
			}
			return next.RoundTrip(r)
		})
	})
	return config
}

// all returns the requests so far.
func (w *requests) all() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.n)
}

// The agent writes each object of an export once. When the Service and its export are deleted, it
// deletes the address and writes nothing else in their namespace, where Events about them would be:
// where Services come and go, it must not keep the API server busy. On a real API server, with the
// rights of the agent.
func TestWritesOfAnExport(t *testing.T) {
	admin, config := globalnetServer(t)
	w := &requests{n: map[string]int{}}
	runGlobalnetAgent(t, w.of(config, "default"))
	in := metav1.ObjectMeta{Namespace: "default", Name: "web"}
	web := &corev1.Service{ObjectMeta: in, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	export := &mcsv1alpha1.ServiceExport{ObjectMeta: in}
	address := &submarinerv1.GlobalIngressIP{ObjectMeta: in}
	require.NoError(t, admin.Create(t.Context(), web))
	require.NoError(t, admin.Create(t.Context(), export))
	require.Eventually(t, func() bool {
		return admin.Get(t.Context(), client.ObjectKeyFromObject(export), export) == nil &&
			meta.IsStatusConditionTrue(export.Status.Conditions, "Ready") &&
			admin.Get(t.Context(), client.ObjectKeyFromObject(web), web) == nil &&
			web.Annotations[submarinerv1.GlobalIPAnnotation] != ""
	}, time.Minute, 50*time.Millisecond)
	time.Sleep(2 * time.Second) // for what should not be written
	want := map[string]int{
		"PATCH globalingressips/web":      1,
		"PUT globalingressips/web/status": 1,
		"PUT serviceexports/web/status":   1,
		"PATCH services/web/status":       1,
	}
	if w.all()["PUT serviceexports/web/status"] == 2 {
		want["PUT serviceexports/web/status"] = 2 // on a slow machine, that the address takes longer than a second
	}
	require.Equal(t, want, w.all())

	require.NoError(t, admin.Delete(t.Context(), web))
	require.NoError(t, admin.Delete(t.Context(), export))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(admin.Get(t.Context(), client.ObjectKeyFromObject(address), address))
	}, time.Minute, 50*time.Millisecond)
	time.Sleep(2 * time.Second)
	want["DELETE globalingressips/web"] = 1
	require.Equal(t, want, w.all())
}
