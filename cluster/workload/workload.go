// Package workload finds out why pods of our workloads do not run: for each node that should have a
// pod of a DaemonSet and for each Deployment, the reason in the words of the API server, the
// scheduler or the kubelet, and what to do. Everything that waits for pods, or shows them, asks
// here.
//
// The pod of a rejected workload does not exist, so no pod has the reason: an Event has it.
// Counters of a DaemonSet do not help either: they count nodes that cannot run a pod.
package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/kube"
)

// Snapshot is what Faults looks at: the workloads of one namespace, and the nodes.
type Snapshot struct {
	Namespace   string
	DaemonSets  []appsv1.DaemonSet
	Deployments []appsv1.Deployment
	ReplicaSets []appsv1.ReplicaSet
	Pods        []corev1.Pod
	Nodes       []corev1.Node
	Events      []corev1.Event
	// Hidden are the resources with reasons that the user may not list.
	Hidden []string

	missing []string // workloads that do not exist
}

// Read reads workloads of a namespace by their names, and what explains their faults. The user must
// have the rights to get the workloads and, for DaemonSets, to list nodes; without the others,
// Faults says what it could not read.
func Read(ctx context.Context, c client.Reader, namespace string, daemonSets, deployments []string) (*Snapshot, error) {
	s := &Snapshot{Namespace: namespace}
	for _, name := range daemonSets {
		ds, err := kube.Optional(ctx, c, &appsv1.DaemonSet{}, client.ObjectKey{Namespace: namespace, Name: name})
		if err != nil {
			return nil, err
		}
		if ds == nil {
			s.missing = append(s.missing, "DaemonSet "+name)
			continue
		}
		s.DaemonSets = append(s.DaemonSets, *ds)
	}
	for _, name := range deployments {
		d, err := kube.Optional(ctx, c, &appsv1.Deployment{}, client.ObjectKey{Namespace: namespace, Name: name})
		if err != nil {
			return nil, err
		}
		if d == nil {
			s.missing = append(s.missing, "Deployment "+name)
			continue
		}
		s.Deployments = append(s.Deployments, *d)
	}
	if len(s.DaemonSets) > 0 {
		nodes := &corev1.NodeList{}
		if err := c.List(ctx, nodes); err != nil {
			return nil, fmt.Errorf("listing nodes: %w", err)
		}
		s.Nodes = nodes.Items
	}
	pods := &corev1.PodList{}
	if err := s.listed(c.List(ctx, pods, client.InNamespace(namespace)), "pods"); err != nil {
		return nil, err
	}
	s.Pods = pods.Items
	return s, s.ReadReasons(ctx, c)
}

// ReadReasons adds the Events and ReplicaSets of the namespace, as far as the user may list them.
func (s *Snapshot) ReadReasons(ctx context.Context, c client.Reader) error {
	events := &corev1.EventList{}
	sets := &appsv1.ReplicaSetList{}
	in := client.InNamespace(s.Namespace)
	err := s.listed(c.List(ctx, events, in), "events")
	if len(s.Deployments) > 0 {
		err = errors.Join(err, s.listed(c.List(ctx, sets, in), "replicasets.apps"))
	}
	s.Events = events.Items
	s.ReplicaSets = sets.Items
	slices.SortStableFunc(s.Events, func(a, b corev1.Event) int { return when(a).Compare(when(b)) })
	return err
}

// listed returns the error of listing objects of a resource. It notes a resource that the user may
// not list instead.
func (s *Snapshot) listed(err error, resource string) error {
	switch {
	case apierrors.IsForbidden(err):
		s.Hidden = append(s.Hidden, resource)
		return nil
	case err == nil, meta.IsNoMatchError(err):
		return nil
	}
	return fmt.Errorf("listing %s: %w", resource, err)
}
