package controller

import (
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kuberest "k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	fakecache "k8s.io/client-go/tools/cache/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/internal/kubetest"
	"subctl/sdewan"
	"subctl/sdewan/controller/expose"
)

// objectSource lists and watches objects that no API server has.
type objectSource struct {
	*fakecache.FakeControllerSource
}

// IsWatchListSemanticsUnSupported makes informers list before they watch.
func (objectSource) IsWatchListSemanticsUnSupported() bool { return true }

// cached returns a client that reads objects that no API server has from a cache with the indexes
// of the controller.
func cached(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := kubetest.Scheme(t)
	mapper := meta.NewDefaultRESTMapper(nil)
	for gvk := range scheme.AllKnownTypes() {
		mapper.Add(gvk, meta.RESTScopeNamespace)
	}
	o := Cache()
	o.Scheme = scheme
	o.Mapper = mapper
	o.HTTPClient = http.DefaultClient
	o.NewInformer = func(
		_ toolscache.ListerWatcher,
		kind runtime.Object,
		resync time.Duration,
		indexers toolscache.Indexers,
	) toolscache.SharedIndexInformer {
		source := objectSource{fakecache.NewFakeControllerSource()}
		for _, obj := range objects {
			if reflect.TypeOf(obj) == reflect.TypeOf(kind) {
				source.Add(obj)
			}
		}
		return toolscache.NewSharedIndexInformer(source, kind, resync, indexers)
	}
	config := &kuberest.Config{Host: "http://192.0.2.1"}
	c, err := cache.New(config, o)
	require.NoError(t, err)
	require.NoError(t, indexServices(t.Context(), c, Options{ClusterDomain: sdewan.ClusterDomain}))
	go func() { _ = c.Start(t.Context()) }()
	require.True(t, c.WaitForCacheSync(t.Context()))
	out, err := client.New(
		config,
		client.Options{
			Scheme:     scheme,
			Mapper:     mapper,
			HTTPClient: http.DefaultClient,
			Cache:      &client.CacheOptions{Reader: c},
		},
	)
	require.NoError(t, err)
	return out
}

// Many CNFServices, or exposed Services and CNFs, in one namespace do not make what the controller
// does for each Service, or for each Deployment, when it starts, more expensive: it must have done
// it for all of them within two minutes.
func TestHostileServices(t *testing.T) {
	const many = 2000
	var objects []client.Object
	add := func(obj client.Object, namespace string, format string, args ...any) {
		obj.SetNamespace(namespace)
		obj.SetName(fmt.Sprintf(format, args...))
		obj.SetLabels(map[string]string{sdewan.PurposeLabel: "of-" + obj.GetName()})
		objects = append(objects, obj)
	}
	for i := range many {
		add(&batch.CNFService{Spec: batch.CNFServiceSpec{FullName: "db.hostile.svc"}}, "hostile", "x%d", i)
		s := &corev1.Service{}
		add(s, "hostile", "s%d", i)
		s.Annotations = map[string]string{expose.Annotation: "{}"}
	}
	add(&corev1.Service{}, "hostile", "not-exposed")
	add(&batch.CNFService{Spec: batch.CNFServiceSpec{FullName: "web"}}, "here", "short")
	add(&batch.CNFService{Spec: batch.CNFServiceSpec{FullName: "Web.here.svc.cluster.local."}}, "there", "long")
	add(&batch.CNFService{Spec: batch.CNFServiceSpec{FullName: "web.here.example.org"}}, "there", "dns")
	c := cached(t, objects...)

	n := newResolver(c, Options{ClusterDomain: sdewan.ClusterDomain})
	service := &corev1.Service{}
	service.Namespace = "here"
	service.Name = "web"
	var users []reconcile.Request
	require.Less(t, testing.AllocsPerRun(5, func() { users = n.users(t.Context(), service) }), many/10.0)
	require.ElementsMatch(t, []reconcile.Request{requestFor("here", "of-short"), requestFor("there", "of-long")}, users)

	asked := map[reconcile.Request]bool{}
	for i := range many {
		d := &appsv1.Deployment{}
		d.Namespace = "hostile"
		d.Name = fmt.Sprint("d", i)
		for _, req := range allOfNamespace(t.Context(), d) {
			asked[req] = true
		}
	}
	require.Len(t, asked, 1, "and the queue has each once")
	exposed := map[reconcile.Request]bool{}
	x := &exposer{client: c, enqueue: func(req reconcile.Request) { exposed[req] = true }}
	for req := range asked {
		_, err := x.Reconcile(t.Context(), req)
		require.NoError(t, err)
	}
	require.Len(t, exposed, many)
	require.NotContains(t, exposed, requestFor("hostile", "not-exposed"))
}

func requestFor(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}
