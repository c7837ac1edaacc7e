package controller

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/internal/kube"
	"subctl/sdewan"
	"subctl/sdewan/controller/fair"
)

// The controller of statuses asks the pods of each CNF what they do, from time to time, and writes
// a CNFStatus: an object with the name of the CNF's Deployment, which owns it.

const (
	// statusWorkers is the number of CNFs that are asked at the same time, of which the first
	// namespace can have half.
	statusWorkers = 64
	// askAtOnce bounds the pods among them: what each returns is in memory, and may come slowly.
	askAtOnce   = 8
	askPatience = time.Minute
	// countersAge is the age of an answer after which one is written in which only counters have
	// changed: under traffic, they do so each time.
	countersAge = time.Minute
	// Pods that have all their rules for the first time within this time are asked together, as the
	// pods of a CNF often start together: somebody waits for them, such as whoever has begun a
	// rollout.
	firstTogether = time.Second
	// What a pod reports first, such as tunnels that are being negotiated, is usually another thing
	// after this time. Then it is asked again.
	firstSettled = 5 * time.Second
)

// statusReconciler works on one CNF for each request.
type statusReconciler struct {
	o      Options
	client client.Client
	fleet  *fleet
	slots  *fair.Slots
}

func newStatusReconciler(o Options, c client.Client, f *fleet) *statusReconciler {
	return &statusReconciler{o: o, client: c, fleet: f, slots: fair.NewSlots(askAtOnce)}
}

// addStatuses adds the controller of statuses. A CNF is asked for the first time after a period, or
// when a pod is new.
func addStatuses(mgr manager.Manager, q *fair.Queue[reconcile.Request], r *statusReconciler) error {
	later := func(o client.Object, q queue) { q.AddAfter(request(o), jitter(r.o.StatusPeriod)) }
	return ctrl.NewControllerManagedBy(mgr).Named("sdewan-statuses").
		WithOptions(controller.Options{
			MaxConcurrentReconciles: statusWorkers, NewQueue: q.ForController,
			LogConstructor: func(*reconcile.Request) logr.Logger { return logr.FromSlogHandler(r.o.Log.Handler()) },
		}).
		Watches(&appsv1.Deployment{}, handler.Funcs{
			CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { later(e.Object, q) },
			UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
				if request(e.ObjectOld) != request(e.ObjectNew) {
					later(e.ObjectNew, q)
				}
			},
		}).
		Complete(r)
}

// Reconcile implements reconcile.Reconciler. It ends after askPatience: what was known of pods that
// it has not reached by then stays.
func (c *statusReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	var list appsv1.DeploymentList // usually one
	of := client.MatchingLabels{sdewan.PurposeLabel: req.Name}
	if err := c.client.List(ctx, &list, client.InNamespace(req.Namespace), of); err != nil || len(list.Items) == 0 {
		return reconcile.Result{}, err
	}
	pause := c.o.StatusPeriod
	var errs []error
	for i := range list.Items {
		first, err := c.one(ctx, &list.Items[i])
		if err != nil && ctx.Err() == nil {
			errs = append(errs, err)
		}
		if first {
			pause = min(pause, firstSettled)
		}
	}
	return reconcile.Result{RequeueAfter: pause}, firstFew(errs)
}

// isReported reports whether a pod has answered what it does, as a CNFStatus has it.
func isReported(s *batch.CNFStatus, pod string) bool {
	return slices.ContainsFunc(s.Status.Information,
		func(i batch.CNFInformation) bool { return i.Name == pod && i.Error == "" })
}

// one asks the pods of a Deployment, and writes what they answer if it has changed. It reports
// whether a pod has answered for the first time.
func (c *statusReconciler) one(ctx context.Context, d *appsv1.Deployment) (first bool, err error) {
	purpose := d.Labels[sdewan.PurposeLabel]
	list, err := c.pods(ctx, d)
	if err != nil {
		return false, err
	}
	information := make([]batch.CNFInformation, len(list))
	var group sync.WaitGroup
	for i, p := range list {
		group.Go(func() {
			information[i] = batch.CNFInformation{
				Name:      p.Name,
				Namespace: p.Namespace,
				Node:      p.Spec.NodeName,
				Purpose:   purpose,
				IP:        p.Status.PodIP,
			}
			information[i].Status, information[i].Error = c.ask(ctx,
				types.NamespacedName{Namespace: d.Namespace, Name: purpose}, p)
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return false, nil
	}
	if same, err := c.exists(ctx, d); !same {
		return false, err
	}
	s := &batch.CNFStatus{ObjectMeta: metav1.ObjectMeta{
		Name: d.Name, Namespace: d.Namespace, Labels: map[string]string{sdewan.PurposeLabel: purpose},
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "Deployment", Name: d.Name, UID: d.UID, Controller: new(true)},
		},
	}}
	var is batch.CNFStatus
	err = c.client.Get(ctx, client.ObjectKeyFromObject(s), &is)
	first = slices.ContainsFunc(information,
		func(i batch.CNFInformation) bool { return i.Error == "" && !isReported(&is, i.Name) })
	switch {
	case err == nil &&
		(equality.Semantic.DeepEqual(is.Status.Information, information) ||
			c.recent(is.Status) && slices.EqualFunc(is.Status.Information, information, sameButCounters)):
		return first, nil
	case apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(&is, d):
		err = kube.Apply(ctx, c.client, fieldOwner, s)
	}
	if err != nil {
		return first, err
	}
	s.Status = batch.CNFStatusStatus{AppliedTime: &metav1.Time{Time: c.o.now()}, Information: information}
	return first, client.IgnoreNotFound(kube.ApplyStatus(ctx, c.client, fieldOwner, s))
}

// exists reports whether a Deployment has not been deleted, nor created anew: then what is known of
// its pods is of no use, and its CNFStatus is removed with it.
func (c *statusReconciler) exists(ctx context.Context, d *appsv1.Deployment) (bool, error) {
	var now appsv1.Deployment
	if err := c.client.Get(ctx, client.ObjectKeyFromObject(d), &now); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return now.UID == d.UID, nil
}

// pods returns the pods of a CNF that are asked.
func (c *statusReconciler) pods(ctx context.Context, d *appsv1.Deployment) ([]*corev1.Pod, error) {
	var pods corev1.PodList
	if err := c.client.List(ctx, &pods, client.InNamespace(
		d.Namespace), client.MatchingLabels{sdewan.PurposeLabel: d.Labels[sdewan.PurposeLabel]}); err != nil {
		return nil, err
	}
	list := live(d, pods.Items)
	return list[:min(len(list), sdewan.MaxPods)], nil
}

// recent reports whether the counters in a status are not to be written again yet.
func (c *statusReconciler) recent(s batch.CNFStatusStatus) bool {
	return s.AppliedTime != nil && c.o.now().Sub(s.AppliedTime.Time) < countersAge
}

// counters are the fields of interfaces, uplinks, tracked hosts and tunnels that change with every
// packet or second.
var counters = []string{
	"received_packets", "send_packets", "age", "online", "offline", "uptime", "turn", "score", "lost", "latency",
	"packetloss", "loss", "jitter", "seconds", "bytes_in", "bytes_out",
}

// sameButCounters reports whether two answers of a pod differ at most in counters, in connections,
// or in what is known of neighbours' states.
func sameButCounters(a, b batch.CNFInformation) bool {
	x := lasting(a.Status)
	y := lasting(b.Status)
	a.Status = ""
	b.Status = ""
	return a == b && x != nil && reflect.DeepEqual(x, y)
}

// lasting returns what modules report without counters; nil if it is not readable.
func lasting(status string) []map[string]any {
	var modules []map[string]any
	if json.Unmarshal([]byte(status), &modules) != nil {
		return nil
	}
	for _, m := range modules {
		delete(m, "count")
		switch m["name"] {
		case "conntrack":
			delete(m, "status")
		case "neighbour":
			strip(m["status"], append([]string{"state"}, counters...))
		default:
			strip(m["status"], counters)
		}
	}
	return modules
}

// strip removes fields of objects, at any depth.
func strip(value any, fields []string) {
	switch v := value.(type) {
	case []any:
		for _, x := range v {
			strip(x, fields)
		}
	case map[string]any:
		for _, f := range fields {
			if _, nested := v[f].(map[string]any); !nested { // an interface may be called "age"
				delete(v, f)
			}
		}
		for _, x := range v {
			strip(x, fields)
		}
	}
}

// ask returns what a pod reports, or why it does not.
func (c *statusReconciler) ask(ctx context.Context, cnf types.NamespacedName, p *corev1.Pod) (status, fault string) {
	if !isReady(p) {
		return "", "the pod is not ready"
	}
	api := c.fleet.client(cnf, p.UID)
	if api == nil {
		return "", "the controller has no access to the pod yet: if this stays, see the Events of its Deployment"
	}
	if err := c.slots.Take(ctx, p.Namespace); err != nil {
		return "", ""
	}
	defer c.slots.Give(p.Namespace)
	ctx, cancel := context.WithTimeout(ctx, c.o.StatusPeriod)
	defer cancel()
	modules, err := api.Status(ctx)
	if err != nil {
		return "", problemOf(p.Name, err).message
	}
	return shortened(modules), ""
}
