package dns

import (
	"context"
	"maps"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/kube"
	"subctl/services"
	"subctl/services/dns"
)

// newClient returns a client that reads from an API server.
func newClient(config *rest.Config) (client.WithWatch, error) {
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, err
	}
	return client.NewWithWatch(rest.CopyConfig(config), client.Options{Scheme: scheme})
}

// followImports returns a function that makes an index follow the ServiceImports of subctl.
func followImports(c client.WithWatch, index *dns.Index) func(context.Context) error {
	f := &follower[*mcsv1alpha1.ServiceImport]{
		client: c, kind: &mcsv1alpha1.ServiceImport{},
		list:    func() client.ObjectList { return &mcsv1alpha1.ServiceImportList{} },
		labels:  labels.Set{submarinerv1.ManagedByLabel: submarinerv1.ManagedBy},
		slim:    slimImport,
		set:     index.SetImport,
		remove:  index.DeleteImport,
		replace: index.ReplaceImports,
	}
	return f.run
}

// followSlices returns a function that makes an index follow the EndpointSlices of service
// discovery.
func followSlices(c client.WithWatch, index *dns.Index) func(context.Context) error {
	f := &follower[*discoveryv1.EndpointSlice]{
		client: c, kind: &discoveryv1.EndpointSlice{},
		list:    func() client.ObjectList { return &discoveryv1.EndpointSliceList{} },
		labels:  labels.Set{discoveryv1.LabelManagedBy: services.ManagedBy},
		slim:    slimSlice,
		set:     index.SetSlice,
		remove:  index.DeleteSlice,
		replace: index.ReplaceSlices,
	}
	return f.run
}

// follower makes an index follow the objects of one kind. Unlike an informer it keeps none of them:
// the index has all that is needed.
type follower[T client.Object] struct {
	client  client.WithWatch
	kind    T
	list    func() client.ObjectList
	labels  labels.Set
	slim    func(T)
	set     func(T)
	remove  func(types.NamespacedName)
	replace func([]T)
}

// listedAtOnce is the number of objects in memory before they are slim, where the API server does
// not stream lists.
const listedAtOnce = 500

// run follows the objects until ctx is done. When the API server is gone, it tries again every few
// seconds: as long as it takes, endpoints may be old.
func (f *follower[T]) run(ctx context.Context) error {
	r := cache.NewReflectorWithOptions(
		&cache.ListWatch{ListWithContextFunc: f.page, WatchFuncWithContext: f.watch},
		f.kind,
		f,
		cache.ReflectorOptions{
			Name: "dns",
			Backoff: &wait.Backoff{
				Duration: 200 * time.Millisecond,
				Factor:   2,
				Jitter:   1,
				Steps:    6,
				Cap:      5 * time.Second,
			},
		},
	)
	r.WatchListPageSize = listedAtOnce
	r.RunWithContext(ctx)
	return nil
}

// page lists a page of objects, and returns them slim. It reads the newest objects, because API
// servers ignore the limit for objects from their caches.
func (f *follower[T]) page(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.ResourceVersion = ""
	opts.ResourceVersionMatch = ""
	full := f.list()
	if err := f.client.List(ctx, full, f.options(opts)); err != nil {
		return nil, err
	}
	out := &internalversion.List{ListMeta: metav1.ListMeta{
		ResourceVersion:    full.GetResourceVersion(),
		Continue:           full.GetContinue(),
		RemainingItemCount: full.GetRemainingItemCount(),
	}}
	return out, meta.EachListItemWithAlloc(full, func(o runtime.Object) error {
		f.slim(o.(T))
		out.Items = append(out.Items, o)
		return nil
	})
}

func (f *follower[T]) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return f.client.Watch(ctx, f.list(), f.options(opts))
}

func (f *follower[T]) options(raw metav1.ListOptions) *client.ListOptions {
	return &client.ListOptions{Raw: &raw, LabelSelector: labels.SelectorFromSet(f.labels)}
}

var _ cache.TransformingStore = &follower[client.Object]{}

// Transformer implements cache.TransformingStore.
func (f *follower[T]) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		if o, ok := o.(T); ok {
			f.slim(o)
		}
		return o, nil
	}
}

// Add implements cache.ReflectorStore.
func (f *follower[T]) Add(o any) error { return f.Update(o) }

// Update implements cache.ReflectorStore.
func (f *follower[T]) Update(o any) error {
	f.set(o.(T))
	return nil
}

// Delete implements cache.ReflectorStore.
func (f *follower[T]) Delete(o any) error {
	f.remove(client.ObjectKeyFromObject(o.(T)))
	return nil
}

// Replace implements cache.ReflectorStore.
func (f *follower[T]) Replace(objects []any, _ string) error {
	all := make([]T, len(objects))
	for i, o := range objects {
		all[i] = o.(T)
	}
	f.replace(all)
	return nil
}

// Resync implements cache.ReflectorStore.
func (f *follower[T]) Resync() error { return nil }

// slimImport removes what the index does not need, while many objects are in memory at once.
func slimImport(o *mcsv1alpha1.ServiceImport) {
	o.ManagedFields = nil
	o.OwnerReferences = nil
	o.Status = mcsv1alpha1.ServiceImportStatus{}
}

// slimSlice does the same for an EndpointSlice.
func slimSlice(o *discoveryv1.EndpointSlice) {
	o.ManagedFields = nil
	o.OwnerReferences = nil
	maps.DeleteFunc(o.Annotations, func(key, _ string) bool { return key != services.AddressAnnotation })
	for i := range o.Endpoints {
		e := &o.Endpoints[i]
		e.DeprecatedTopology = nil
		e.NodeName = nil
		e.Zone = nil
		e.TargetRef = nil
		e.Hints = nil
	}
}
