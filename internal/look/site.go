// Package look is shared by the commands that inspect clusters. It reads clusters (Site),
// renders tables from what was read (View), for several clusters at once (Panel), and
// reports problems. It changes nothing. Package cmd defines the tables, and package printer
// formats them.
package look

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/exchange"
	"subctl/cluster/networks"
	"subctl/cluster/workload"
)

// Site is the state of one cluster, read at one time. Gateways are sorted by name; other
// lists are in the API server's order, by namespace and name.
type Site struct {
	Name       string               // the cluster ID; before the cluster has joined, its name in the kubeconfig
	Now        time.Time            // of the API server
	Submariner *v1alpha1.Submariner // nil: not joined

	Gateways    []submarinerv1.Gateway
	RouteAgents []submarinerv1.RouteAgent
	Brokers     []v1alpha1.Broker
	Global      *GlobalAddresses // nil: not read
	Services    *Services        // nil: not read, or the cluster has no service discovery
	Members     *Members         // nil: not read, or neither a member nor a broker
	Decisions   Decisions
	Removed     []exchange.Removal
	DaemonSets  []appsv1.DaemonSet
	Deployments []appsv1.Deployment
	Pods        []corev1.Pod
	Nodes       []corev1.Node
	Network     *networks.Discovered // nil: not read
	Workloads   *workload.Snapshot   // of DaemonSets and Deployments; nil: not read
}

// Joined reports whether the cluster has joined.
func (s Site) Joined() bool { return s.Submariner != nil }

// Leaving returns a note about a cluster that is being uninstalled; empty if it is not.
func (s Site) Leaving() string {
	if s.Joined() {
		return Leaving(s.Submariner)
	}
	return ""
}

// Leaving returns a note about a Submariner object that is being deleted; empty if it is not.
func Leaving(sub *v1alpha1.Submariner) string {
	if sub.DeletionTimestamp == nil {
		return ""
	}
	return "it is leaving its clustersets since " + sub.DeletionTimestamp.UTC().Format(
		time.RFC3339) + ": subctl uninstall finishes that"
}

// Read reads one part of a Site. A command reads only what it shows, so that the user needs
// no other rights.
type Read func(context.Context, client.Reader, *Site) error

func readSubmariner(ctx context.Context, r client.Reader, s *Site) error {
	var list v1alpha1.SubmarinerList
	if err := listOf(ctx, r, &list, "Submariner"); err != nil || len(list.Items) == 0 {
		return err
	}
	s.Submariner = &list.Items[0]
	s.Name = cmp.Or(s.Submariner.Spec.ClusterID, s.Name)
	return nil
}

// ReadGateways reads the reports of the gateways.
func ReadGateways(ctx context.Context, r client.Reader, s *Site) error {
	var list submarinerv1.GatewayList
	err := listOf(ctx, r, &list, "gateways")
	s.Gateways = list.Items
	slices.SortFunc(s.Gateways, func(a, b submarinerv1.Gateway) int { return strings.Compare(a.Name, b.Name) })
	return err
}

// ReadRouteAgents reads the reports of the route agents.
func ReadRouteAgents(ctx context.Context, r client.Reader, s *Site) error {
	var list submarinerv1.RouteAgentList
	err := listOf(ctx, r, &list, "route agents")
	s.RouteAgents = list.Items
	return err
}

// ReadRouteAgentsIfAllowed is like ReadRouteAgents for a user who need not have the rights for it:
// without them it reads nothing.
func ReadRouteAgentsIfAllowed(ctx context.Context, r client.Reader, s *Site) error {
	err := ReadRouteAgents(ctx, r, s)
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// ReadBrokers reads the brokers in all namespaces, since a broker can be in any namespace.
func ReadBrokers(ctx context.Context, r client.Reader, s *Site) error {
	var list v1alpha1.BrokerList
	err := listIn(ctx, r, &list, "", "brokers")
	s.Brokers = list.Items
	return err
}

// ReadWorkloads reads the DaemonSets and Deployments, their pods, and the nodes.
func ReadWorkloads(ctx context.Context, r client.Reader, s *Site) error {
	var daemonSets appsv1.DaemonSetList
	var deployments appsv1.DeploymentList
	var pods corev1.PodList
	var nodes corev1.NodeList
	err := errors.Join(listOf(ctx, r, &daemonSets, "daemon sets"), listOf(ctx, r, &deployments, "deployments"),
		listOf(ctx, r, &pods, "pods"), listIn(ctx, r, &nodes, "", "nodes"))
	s.DaemonSets = daemonSets.Items
	s.Deployments = deployments.Items
	s.Pods = pods.Items
	s.Nodes = nodes.Items
	if err != nil {
		return err
	}
	s.Workloads = &workload.Snapshot{
		Namespace: submarinerv1.OperatorNamespace, DaemonSets: s.DaemonSets, Deployments: s.Deployments, Pods: s.Pods,
		Nodes: s.Nodes,
	}
	return s.Workloads.ReadReasons(ctx, r)
}

// ReadDeployments reads Deployments in the namespace of the agents, and what explains their faults,
// as far as the user may.
func ReadDeployments(names ...string) Read {
	return func(ctx context.Context, r client.Reader, s *Site) error {
		if !s.Joined() || s.Workloads != nil {
			return nil
		}
		var err error
		s.Workloads, err = workload.Read(ctx, r, submarinerv1.OperatorNamespace, nil, names)
		if apierrors.IsForbidden(err) {
			s.Workloads = nil
			err = nil
		}
		return err
	}
}

// Faults returns why pods of workloads with the given names do not run, one line each. Pods that
// are just starting have faults, too.
func (s Site) Faults(names ...string) []string {
	if s.Workloads == nil {
		return nil
	}
	return workload.Lines(s.Workloads.Of(names...))
}

// ReadNodes reads the nodes.
func ReadNodes(ctx context.Context, r client.Reader, s *Site) error {
	var list corev1.NodeList
	err := listIn(ctx, r, &list, "", "nodes")
	s.Nodes = list.Items
	return err
}

// ReadNetwork discovers the networks of a cluster that has joined, and its network plugin, as far
// as the user may read its configuration.
func ReadNetwork(ctx context.Context, r client.Reader, s *Site) error {
	if !s.Joined() {
		return nil
	}
	var err error
	s.Network, err = networks.Inspect(ctx, r)
	return err
}

// listOf lists objects in the namespace of the agents.
func listOf(ctx context.Context, r client.Reader, list client.ObjectList, what string) error {
	return listIn(ctx, r, list, submarinerv1.OperatorNamespace, what)
}

// listIn lists objects in a namespace. The list is empty if the kind does not exist.
func listIn(
	ctx context.Context, r client.Reader, list client.ObjectList, namespace, what string, opts ...client.ListOption,
) error {
	err := r.List(ctx, list, append(opts, client.InNamespace(namespace))...)
	if err == nil || meta.IsNoMatchError(err) {
		return nil
	}
	return fmt.Errorf("reading the %s: %w", what, WithRemedy(err, namespace))
}

// WithRemedy returns the error of reading objects in a namespace, or in all if it is empty. Where
// the user lacks a right, the error has the remedy.
func WithRemedy(err error, namespace string) error {
	var status *apierrors.StatusError
	switch {
	case !errors.As(err, &status) || !apierrors.IsForbidden(status):
		return err
	case status.ErrStatus.Details == nil || status.ErrStatus.Details.Kind == "":
		// It is about no object: the user may not read which kinds the API server serves. Only
		// users who have not logged in lack that right.
		return errors.New(
			"the API server does not let this user read which kinds it serves, which every user who has logged in may do: log in, or choose another user or context")
	case status.ErrStatus.Details.Kind == "nodes":
		return fmt.Errorf(
			"%w: ask an administrator for the right to list nodes, which the ClusterRole view does not contain, or choose another user or context (docs/permissions.md)",
			err)
	}
	return fmt.Errorf("%w: %s", err, remedy(namespace))
}

// remedy returns what to do about a denied read in a namespace; empty means all namespaces.
func remedy(namespace string) string {
	where := "for all namespaces"
	if namespace != "" {
		where = "in namespace " + namespace
	}
	return "ask an administrator for the ClusterRole view " + where +
		", or choose another user or context (docs/permissions.md)"
}
