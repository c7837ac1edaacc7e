package controller

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/internal/kube"
	"subctl/internal/wake"
	"subctl/sdewan"
)

// The collector asks the pods of all CNFs what they do, from time to time, and writes a CNFStatus for each CNF: an object with the name of its
// Deployment, which owns it.

// Pods that are asked at the same time: what each returns is in memory, and may come slowly.
const askAtOnce = 8

type collector struct {
	o      Options
	client client.Client
	fleet  *fleet
	slots  *shares
	turns  turns
}

func newCollector(o Options, c client.Client, f *fleet) *collector {
	return &collector{o: o, client: c, fleet: f, slots: newShares(askAtOnce), turns: turns{taken: map[types.NamespacedName]bool{}}}
}

// NeedLeaderElection makes the manager run the collector on the leader alone.
func (*collector) NeedLeaderElection() bool { return true }

// Start collects until ctx is done.
func (c *collector) Start(ctx context.Context) error {
	defer c.fleet.close()
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { c.first(ctx) })
	for wake.After(ctx, c.o.StatusPeriod) == nil {
		if err := c.collect(ctx); err != nil && ctx.Err() == nil {
			c.o.Log.Error("reading what CNFs do", "err", err)
		}
	}
	return nil
}

// collect asks all CNFs once, except those that are being asked already because they have new pods. It stops after two periods: what was known of CNFs that
// it has not reached by then stays.
func (c *collector) collect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*c.o.StatusPeriod)
	defer cancel()
	var deployments appsv1.DeploymentList
	if err := c.client.List(ctx, &deployments); err != nil {
		return err
	}
	cnfs := map[types.NamespacedName][]*appsv1.Deployment{} // usually one each
	for i := range deployments.Items {
		d := &deployments.Items[i]
		cnf := types.NamespacedName{Namespace: d.Namespace, Name: d.Labels[sdewan.PurposeLabel]}
		cnfs[cnf] = append(cnfs[cnf], d)
	}
	var mu sync.Mutex
	var errs []error
	var group sync.WaitGroup
	for cnf, all := range cnfs {
		if !c.turns.take(cnf) {
			continue
		}
		group.Go(func() {
			defer c.giveTurn(cnf)
			for _, d := range all {
				if err := c.one(ctx, d); err != nil && ctx.Err() == nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	return firstFew(errs)
}

// one asks the pods of one CNF, and writes what they answer if it has changed. The caller has the turn of the CNF.
func (c *collector) one(ctx context.Context, d *appsv1.Deployment) error {
	purpose := d.Labels[sdewan.PurposeLabel]
	list, err := c.pods(ctx, d)
	if err != nil {
		return err
	}
	information := make([]batch.CNFInformation, len(list))
	var group sync.WaitGroup
	for i, p := range list {
		group.Go(func() {
			information[i] = batch.CNFInformation{Name: p.Name, Namespace: p.Namespace, Node: p.Spec.NodeName, Purpose: purpose, IP: p.Status.PodIP}
			information[i].Status, information[i].Error = c.ask(ctx, types.NamespacedName{Namespace: d.Namespace, Name: purpose}, p)
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return nil
	}
	if same, err := c.exists(ctx, d); !same {
		return err
	}
	s := &batch.CNFStatus{ObjectMeta: metav1.ObjectMeta{
		Name: d.Name, Namespace: d.Namespace, Labels: map[string]string{sdewan.PurposeLabel: purpose},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: d.Name, UID: d.UID, Controller: new(true)}},
	}}
	var is batch.CNFStatus
	err = c.client.Get(ctx, client.ObjectKeyFromObject(s), &is)
	switch {
	case err == nil && (equality.Semantic.DeepEqual(is.Status.Information, information) || c.recent(is.Status) && slices.EqualFunc(is.Status.Information, information, sameButCounters)):
		return nil
	case apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(&is, d):
		err = kube.Apply(ctx, c.client, fieldOwner, s)
	}
	if err != nil {
		return err
	}
	s.Status = batch.CNFStatusStatus{AppliedTime: &metav1.Time{Time: c.o.now()}, Information: information}
	return client.IgnoreNotFound(kube.ApplyStatus(ctx, c.client, fieldOwner, s))
}

// exists reports whether a Deployment has not been deleted, nor created anew: then what is known of its pods is of no use, and its CNFStatus is removed with it.
func (c *collector) exists(ctx context.Context, d *appsv1.Deployment) (bool, error) {
	var now appsv1.Deployment
	if err := c.client.Get(ctx, client.ObjectKeyFromObject(d), &now); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return now.UID == d.UID, nil
}

// pods returns the pods of a CNF that are asked.
func (c *collector) pods(ctx context.Context, d *appsv1.Deployment) ([]*corev1.Pod, error) {
	var pods corev1.PodList
	if err := c.client.List(ctx, &pods, client.InNamespace(d.Namespace), client.MatchingLabels{sdewan.PurposeLabel: d.Labels[sdewan.PurposeLabel]}); err != nil {
		return nil, err
	}
	list := live(d, pods.Items)
	return list[:min(len(list), sdewan.MaxPods)], nil
}

// countersPer is after how many periods an answer is written in which only counters have changed: under traffic, they do so each time.
const countersPer = 10

// recent reports whether the counters in a status are not to be written again yet.
func (c *collector) recent(s batch.CNFStatusStatus) bool {
	return s.AppliedTime != nil && c.o.now().Sub(s.AppliedTime.Time) < countersPer*c.o.StatusPeriod
}

// counters are the fields of interfaces, uplinks, tracked hosts and tunnels that change with every packet or second.
var counters = []string{
	"received_packets", "send_packets", "age", "online", "offline", "uptime", "turn", "score", "lost", "latency", "packetloss", "seconds", "bytes_in", "bytes_out",
}

// sameButCounters reports whether two answers of a pod differ at most in counters, in connections, or in what is known of neighbours' states.
func sameButCounters(a, b batch.CNFInformation) bool {
	x, y := lasting(a.Status), lasting(b.Status)
	a.Status, b.Status = "", ""
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
func (c *collector) ask(ctx context.Context, cnf types.NamespacedName, p *corev1.Pod) (status, fault string) {
	if !isReady(p) {
		return "", "the pod is not ready"
	}
	api := c.fleet.client(cnf, p.UID)
	if api == nil {
		return "", "the controller has no access to the pod yet: if this stays, see the Events of its Deployment"
	}
	if err := c.slots.take(ctx, p.Namespace); err != nil {
		return "", ""
	}
	defer c.slots.give(p.Namespace)
	ctx, cancel := context.WithTimeout(ctx, c.o.StatusPeriod)
	defer cancel()
	modules, err := api.Status(ctx)
	if err != nil {
		return "", problemOf(p.Name, err).message
	}
	return shortened(modules), ""
}
