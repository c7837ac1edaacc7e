package controller

import (
	"context"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"subctl/sdewan"
	"subctl/sdewan/controller/expose"
	"subctl/sdewan/controller/fair"
)

// Add adds the controllers to a manager, which must have been made with Cache and a configuration
// of Config. They run on the leader, if the manager elects one.
func Add(ctx context.Context, mgr manager.Manager, o Options) error {
	if err := o.complete(); err != nil {
		return err
	}
	if err := indexServices(ctx, mgr.GetFieldIndexer(), o); err != nil {
		return err
	}
	recorder := mgr.GetEventRecorder(fieldOwner)
	fleet := newFleet(mgr.GetAPIReader(), o)
	names := newResolver(mgr.GetClient(), o)
	syncs := newSyncs(o.now)
	cnfQueue := fair.NewRequestQueue(cnfWorkers)
	podQueue := newPodQueue(syncs)
	statusQueue := fair.NewRequestQueue(statusWorkers)
	syncs.changed = func(cnf types.NamespacedName) { cnfQueue.Add(reconcile.Request{NamespacedName: cnf}) }
	if err := addPods(mgr, podQueue, &podReconciler{
		o: o, client: mgr.GetClient(), fleet: fleet, names: names, syncs: syncs,
		ask:     func(cnf types.NamespacedName) { statusQueue.Add(reconcile.Request{NamespacedName: cnf}) },
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[podKey](o.RetryFrom, o.RetryUntil),
	}); err != nil {
		return err
	}
	if err := addCNFs(mgr, cnfQueue, &cnfReconciler{
		o: o, client: mgr.GetClient(), events: recorder, fleet: fleet, names: names, syncs: syncs,
		writes: fair.NewSlots(maxWrites), due: podQueue.Add,
		faults:    map[types.NamespacedName]problem{},
		told:      map[types.NamespacedName]news{},
		readiness: map[types.NamespacedName]readiness{},
		noted:     map[types.NamespacedName]string{},
		strangers: map[types.NamespacedName]string{},
	}); err != nil {
		return err
	}
	if err := addStatuses(mgr, statusQueue, newStatusReconciler(o, mgr.GetClient(), fleet)); err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { // on the leader
		<-ctx.Done()
		fleet.close()
		return nil
	})); err != nil {
		return err
	}
	return addExposures(mgr, o, recorder)
}

// addPods adds the controller of pods, for which the controller of CNFs makes the requests.
func addPods(mgr manager.Manager, q *fair.Queue[podKey], r *podReconciler) error {
	_, err := controller.NewTyped("sdewan-pods", mgr, controller.TypedOptions[podKey]{
		Reconciler: r, MaxConcurrentReconciles: podWorkers, NewQueue: q.ForController,
		RateLimiter:    workqueue.NewTypedItemExponentialFailureRateLimiter[podKey](r.o.RetryFrom, r.o.RetryUntil),
		LogConstructor: func(*podKey) logr.Logger { return logr.FromSlogHandler(r.o.Log.Handler()) },
	})
	return err
}

// addCNFs adds the controller of CNFs.
func addCNFs(mgr manager.Manager, q *fair.Queue[reconcile.Request], r *cnfReconciler) error {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](r.o.RetryFrom, r.o.RetryUntil)
	b := ctrl.NewControllerManagedBy(mgr).Named("sdewan").WithOptions(controller.Options{
		MaxConcurrentReconciles: cnfWorkers, NewQueue: q.ForController, RateLimiter: limiter,
		LogConstructor: func(*reconcile.Request) logr.Logger { return logr.FromSlogHandler(r.o.Log.Handler()) },
	})
	for _, k := range sdewan.Kinds() {
		b = b.Watches(k.New().(client.Object), cnfs{}, builder.WithPredicates(ruleChanged))
	}
	changed := builder.WithPredicates(slimChanged)
	return b.Watches(&appsv1.Deployment{}, cnfs{}, changed).
		Watches(&corev1.Pod{}, cnfs{}, changed).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(r.names.users), changed).
		Complete(r)
}

// Config returns a configuration for the manager's clients. The client does not limit requests
// itself: the controller bounds how many it sends at a time, and the API server shares its capacity
// fairly.
func Config(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.QPS = -1
	return c
}

// Cache returns what the manager caches: rules, the Deployments and pods of CNFs, and Services, all
// without what is not needed.
func Cache() cache.Options {
	ofCNFs := labels.NewSelector()
	if has, err := labels.NewRequirement(sdewan.PurposeLabel, selection.Exists, nil); err == nil { // a constant
		ofCNFs = ofCNFs.Add(*has)
	}
	return cache.Options{
		DefaultTransform: slim,
		ByObject: map[client.Object]cache.ByObject{
			&appsv1.Deployment{}: {Label: ofCNFs, Transform: slim},
			&corev1.Pod{}:        {Label: ofCNFs, Transform: slim},
			&corev1.Service{}:    {Transform: slim},
		},
	}
}

// slim removes what the controller does not read: most of a cluster's memory would be managed
// fields and specs of pods.
func slim(obj any) (any, error) {
	o, ok := obj.(client.Object)
	if !ok {
		return obj, nil
	}
	o.SetManagedFields(nil)
	switch o := o.(type) {
	case *corev1.Pod:
		few := &corev1.Pod{ObjectMeta: o.ObjectMeta, Spec: corev1.PodSpec{NodeName: o.Spec.NodeName}}
		few.Annotations = only(o.Annotations, sdewan.NetworksAnnotation)
		few.Status = corev1.PodStatus{Phase: o.Status.Phase, PodIP: o.Status.PodIP}
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.PodReady {
				few.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
			}
		}
		for _, c := range o.Status.ContainerStatuses {
			few.Status.ContainerStatuses = append(few.Status.ContainerStatuses, corev1.ContainerStatus{
				Name:         c.Name,
				RestartCount: c.RestartCount,
				ContainerID:  c.ContainerID,
			})
		}
		return few, nil
	case *appsv1.Deployment:
		few := &appsv1.Deployment{
			ObjectMeta: o.ObjectMeta,
			Spec:       appsv1.DeploymentSpec{Replicas: o.Spec.Replicas, Selector: o.Spec.Selector},
		}
		few.Annotations = only(o.Annotations, UnmanagedAnnotation, expose.ZonesAnnotation)
		few.Spec.Template.ObjectMeta = metav1.ObjectMeta{
			Labels:      o.Spec.Template.Labels,
			Annotations: only(o.Spec.Template.Annotations, sdewan.NetworksAnnotation),
		}
		few.Status = appsv1.DeploymentStatus{
			ReadyReplicas:      o.Status.ReadyReplicas,
			ObservedGeneration: o.Status.ObservedGeneration,
		}
		return few, nil
	case *corev1.Service:
		few := &corev1.Service{ObjectMeta: o.ObjectMeta}
		few.Labels = nil
		few.Annotations = only(o.Annotations, expose.Annotation)
		few.Spec = corev1.ServiceSpec{
			Type:         o.Spec.Type,
			ClusterIP:    o.Spec.ClusterIP,
			ClusterIPs:   o.Spec.ClusterIPs,
			ExternalName: o.Spec.ExternalName,
		}
		for _, p := range o.Spec.Ports {
			few.Spec.Ports = append(few.Spec.Ports, corev1.ServicePort{
				Name:     p.Name,
				Protocol: p.Protocol,
				Port:     p.Port,
			})
		}
		return few, nil
	}
	return o, nil
}

func only(m map[string]string, keys ...string) map[string]string {
	var out map[string]string
	for k, v := range m {
		if slices.Contains(keys, k) {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v
		}
	}
	return out
}

// cnfs makes every change of a labelled object a request for its CNF, and a change of the label one
// for both CNFs.
type cnfs struct{}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func request(o client.Object) reconcile.Request {
	return reconcile.Request{
		NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetLabels()[sdewan.PurposeLabel]},
	}
}

func (c cnfs) add(o client.Object, q queue) { q.Add(request(o)) }

func (c cnfs) Create(_ context.Context, e event.CreateEvent, q queue) { c.add(e.Object, q) }

func (c cnfs) Update(_ context.Context, e event.UpdateEvent, q queue) {
	c.add(e.ObjectOld, q)
	c.add(e.ObjectNew, q)
}

func (c cnfs) Delete(_ context.Context, e event.DeleteEvent, q queue) { c.add(e.Object, q) }

func (c cnfs) Generic(_ context.Context, e event.GenericEvent, q queue) { c.add(e.Object, q) }

// ruleChanged leaves out what the controller itself changes in a rule.
var ruleChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	a := e.ObjectOld
	b := e.ObjectNew
	return a.GetUID() != b.GetUID() || a.GetGeneration() != b.GetGeneration() ||
		!maps.Equal(a.GetLabels(), b.GetLabels()) ||
		a.GetDeletionTimestamp().IsZero() != b.GetDeletionTimestamp().IsZero()
}}

// slimChanged leaves out changes of what slim has removed.
var slimChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	a := e.ObjectOld.DeepCopyObject().(client.Object)
	b := e.ObjectNew.DeepCopyObject().(client.Object)
	a.SetResourceVersion("")
	b.SetResourceVersion("")
	return !equality.Semantic.DeepEqual(a, b)
}}
