package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/internal/kube"
	"subctl/sdewan"
	"subctl/sdewan/controller/expose"
	"subctl/sdewan/controller/fair"
)

// exposer makes the rules of Services: one request for each Service, and one for all Services of a
// namespace.
type exposer struct {
	client client.Client
	events events.EventRecorder
	o      Options

	enqueue func(reconcile.Request)
}

// exposers is the number of Services that are worked on at the same time, so that namespaces with
// many ports delay others less. They share nothing.
const exposers = 4

func addExposures(mgr manager.Manager, o Options, recorder events.EventRecorder) error {
	q := fair.NewRequestQueue(exposers)
	x := &exposer{client: mgr.GetClient(), events: recorder, o: o, enqueue: q.Add}
	annotated := predicate.NewPredicateFuncs(
		func(obj client.Object) bool { return obj.GetAnnotations()[expose.Annotation] != "" })
	// An update may have removed the annotation; a Service that is gone leaves its rules to the
	// garbage collector, and to Reconcile.
	annotated.UpdateFunc = func(e event.UpdateEvent) bool {
		before := e.ObjectOld.GetAnnotations()[expose.Annotation]
		after := e.ObjectNew.GetAnnotations()[expose.Annotation]
		return (before != "" || after != "") && slimChanged.Update(e)
	}
	concerns := func(obj client.Object) bool { return len(servicesOf(obj)) > 0 }
	made := predicate.NewPredicateFuncs(concerns)
	made.UpdateFunc = func(e event.UpdateEvent) bool {
		return (concerns(e.ObjectOld) || concerns(e.ObjectNew)) &&
			(ruleChanged.Update(e) ||
				!equality.Semantic.DeepEqual(e.ObjectOld.GetOwnerReferences(), e.ObjectNew.GetOwnerReferences()))
	}
	return ctrl.NewControllerManagedBy(mgr).Named("sdewan-services").
		WithOptions(
			controller.Options{
				MaxConcurrentReconciles: exposers,
				NewQueue:                q.ForController,
				LogConstructor: func(*reconcile.Request) logr.Logger {
					return logr.FromSlogHandler(o.Log.Handler())
				},
			},
		).
		Watches(&corev1.Service{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(annotated)).
		// At the start, each rule that exists leads to its Service: so what is left of one that is
		// gone, or not exposed any more, is removed.
		Watches(
			&batch.FirewallDNAT{},
			handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) (out []reconcile.Request) {
				for _, name := range servicesOf(obj) {
					out = append(
						out,
						reconcile.Request{
							NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name},
						},
					)
				}
				return out
			}),
			builder.WithPredicates(made),
		).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(allOfNamespace),
			builder.WithPredicates(labelsChanged)).
		Complete(x)
}

// servicesOf returns the names of the Services that a FirewallDNAT concerns: its owner, and the one
// whose rule has, or would have, its name. A user may have made it, or made it his.
func servicesOf(rule client.Object) (names []string) {
	for _, owner := range rule.GetOwnerReferences() {
		if owner.Kind == "Service" {
			names = append(names, owner.Name)
		}
	}
	if name := expose.ServiceOf(rule.GetName()); name != "" && !slices.Contains(names, name) {
		names = append(names, name)
	}
	return names
}

// labelsChanged leaves out changes of a Deployment that do not matter to Services.
var labelsChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
		!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations())
}}

// allOfNamespace returns one request for all Services of the namespace of a Deployment, of which
// any may name its CNF. It has no name. A worker lists them, once for many Deployments: if each
// Deployment did that when it is seen, one namespace with many of both could keep the controller
// from starting.
func allOfNamespace(_ context.Context, deployment client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: deployment.GetNamespace()}}}
}

// enqueueAll makes a request for each Service of a namespace that is to be exposed.
func (x *exposer) enqueueAll(ctx context.Context, namespace string) error {
	var list corev1.ServiceList // the objects of the cache, which must not be changed
	if err := x.client.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range list.Items {
		if s := &list.Items[i]; s.Annotations[expose.Annotation] != "" {
			x.enqueue(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)})
		}
	}
	return nil
}

// zones returns the zones of a CNF from which Services may be reached.
func (x *exposer) zones(ctx context.Context, namespace, purpose string) ([]string, error) {
	var list appsv1.DeploymentList
	if err := x.client.List(ctx, &list, client.InNamespace(
		namespace), client.MatchingLabels{sdewan.PurposeLabel: purpose}); err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("annotation %s: %d Deployments in namespace %s have the label %s=%s: there must be one",
			expose.Annotation, len(list.Items), namespace, sdewan.PurposeLabel, purpose)
	}
	return strings.FieldsFunc(list.Items[0].Annotations[expose.ZonesAnnotation],
		func(r rune) bool { return r == ',' || r == ' ' }), nil
}

// Reconcile makes the rules of a Service be what its annotation says. A request without a name is
// for all Services of a namespace.
func (x *exposer) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if req.Name == "" {
		return reconcile.Result{}, x.enqueueAll(ctx, req.Namespace)
	}
	s := &corev1.Service{}
	if err := x.client.Get(ctx, req.NamespacedName, s); err != nil {
		if !apierrors.IsNotFound(err) {
			return reconcile.Result{}, err
		}
		s = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name}}
	}
	zones := func(purpose string) ([]string, error) { return x.zones(ctx, s.Namespace, purpose) }
	want, mistake := expose.Rules(s, zones)
	if mistake != nil {
		x.o.Log.Warn("Service is not exposed", "namespace", s.Namespace, "service", s.Name, "err",
			bounded(oneLine(mistake)))
	}
	// the objects of the cache, which must not be changed: a namespace may have tens of thousands
	var have batch.FirewallDNATList
	if err := x.client.List(ctx, &have, client.InNamespace(req.Namespace), client.HasLabels{expose.Label},
		client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, err
	}
	var errs []error
	var not, taken []string // of Events, which are one for each reason
	if mistake != nil {
		not = append(not, oneLine(mistake))
	}
	oldest, named := index(have.Items)
	for _, r := range want {
		o := oldest[publicPortOf(r)]
		own := named[r.Name]
		if o != nil && o.Name != r.Name && (own == nil || sdewan.Order(o, own) < 0) {
			taken = append(taken,
				fmt.Sprintf("%s/%s (Service %s)", r.Spec.SrcDPort, r.Spec.Proto, metav1.GetControllerOf(o).Name))
		}
		var is batch.FirewallDNAT
		err := x.client.Get(ctx, client.ObjectKeyFromObject(r), &is)
		switch {
		case err == nil && !metav1.IsControlledBy(&is, s):
			not = append(not, fmt.Sprintf("FirewallDNAT %s exists, and is not the controller's: rename it", r.Name))
			continue
		case err == nil && is.DeletionTimestamp.IsZero() && is.Spec == r.Spec && sameLabels(is.Labels, r.Labels):
			continue
		case err == nil || apierrors.IsNotFound(err):
			err = kube.Apply(ctx, x.client, fieldOwner, r)
		}
		errs = append(errs, err)
	}
	if len(not) > 0 {
		x.events.Eventf(s, nil, corev1.EventTypeWarning, "NotExposed", "Expose", "%s", bounded(strings.Join(not, "; ")))
	}
	if len(taken) > 0 {
		x.events.Eventf(
			s,
			nil,
			corev1.EventTypeWarning,
			"PortTaken",
			"Expose",
			"%s",
			bounded(
				"older rules lead ports of the CNF to other Services already: choose other ports with \"as\" in place of "+
					strings.Join(taken, ", "),
			),
		)
	}
	for i := range have.Items {
		r := &have.Items[i]
		of := metav1.GetControllerOf(r)
		if of == nil || of.Kind != "Service" || of.Name != req.Name || !r.DeletionTimestamp.IsZero() {
			continue
		}
		if !slices.ContainsFunc(want, func(w *batch.FirewallDNAT) bool { return w.Name == r.Name && of.UID == s.UID }) {
			errs = append(errs, client.IgnoreNotFound(x.client.Delete(ctx, r, client.Preconditions{UID: &r.UID})))
		}
	}
	return reconcile.Result{}, errors.Join(errs...)
}

// publicPort is a port of a zone of a CNF, at which a Service is reached.
type publicPort struct {
	purpose string
	src     batch.ZoneName
	port    batch.Ports
	proto   batch.Proto
}

func publicPortOf(r *batch.FirewallDNAT) publicPort {
	return publicPort{r.Labels[sdewan.PurposeLabel], r.Spec.Src, r.Spec.SrcDPort, r.Spec.Proto}
}

// index returns the oldest rule of a Service for each port, and all rules by name.
func index(
	rules []batch.FirewallDNAT,
) (oldest map[publicPort]*batch.FirewallDNAT, named map[string]*batch.FirewallDNAT) {
	oldest = map[publicPort]*batch.FirewallDNAT{}
	named = make(map[string]*batch.FirewallDNAT, len(rules))
	for i := range rules {
		r := &rules[i]
		named[r.Name] = r
		if o := oldest[publicPortOf(r)]; metav1.GetControllerOf(r) != nil && (o == nil || sdewan.Order(r, o) < 0) {
			oldest[publicPortOf(r)] = r
		}
	}
	return oldest, named
}

func sameLabels(is, want map[string]string) bool {
	for k, v := range want {
		if is[k] != v {
			return false
		}
	}
	return true
}
