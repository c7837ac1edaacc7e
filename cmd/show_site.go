package cmd

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
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// site is what was read of one cluster, at one time. Lists are in the API
// server's order, by namespace and name.
type site struct {
	name       string // the cluster ID; before the cluster has joined, its name in the kubeconfig
	now        time.Time
	submariner *v1alpha1.Submariner // nil: not joined

	gateways    []submarinerv1.Gateway
	routeAgents []submarinerv1.RouteAgent
	brokers     []v1alpha1.Broker
	daemonSets  []appsv1.DaemonSet
	deployments []appsv1.Deployment
	pods        []corev1.Pod
	nodes       []corev1.Node
}

// joined reports whether the cluster has joined.
func (s site) joined() bool { return s.submariner != nil }

// read reads one part of a site. What a section does not show is not asked for,
// so that the user needs no right to see it.
type read func(context.Context, client.Reader, *site) error

// site reads a target.
func (t *target) site(ctx context.Context, g *globals, reads []read) (site, error) {
	s := site{name: t.cluster}
	if err := t.connect(ctx, g); err != nil {
		return s, err
	}
	for _, read := range append([]read{readSubmariner}, reads...) {
		if err := read(ctx, t.client, &s); err != nil {
			return s, err
		}
	}
	s.now = t.clock.now()
	return s, nil
}

func readSubmariner(ctx context.Context, r client.Reader, s *site) error {
	var list v1alpha1.SubmarinerList
	if err := listOf(ctx, r, &list, "Submariner"); err != nil || len(list.Items) == 0 {
		return err
	}
	s.submariner = &list.Items[0]
	s.name = cmp.Or(s.submariner.Spec.ClusterID, s.name)
	return nil
}

func readGateways(ctx context.Context, r client.Reader, s *site) error {
	var list submarinerv1.GatewayList
	err := listOf(ctx, r, &list, "gateways")
	s.gateways = list.Items
	return err
}

func readRouteAgents(ctx context.Context, r client.Reader, s *site) error {
	var list submarinerv1.RouteAgentList
	err := listOf(ctx, r, &list, "route agents")
	s.routeAgents = list.Items
	return err
}

// readBrokers reads the brokers of all namespaces: a broker's is its owner's choice.
func readBrokers(ctx context.Context, r client.Reader, s *site) error {
	var list v1alpha1.BrokerList
	err := listIn(ctx, r, &list, "", "brokers")
	s.brokers = list.Items
	return err
}

// readWorkloads reads what was deployed, and on which nodes it runs.
func readWorkloads(ctx context.Context, r client.Reader, s *site) error {
	var daemonSets appsv1.DaemonSetList
	var deployments appsv1.DeploymentList
	var pods corev1.PodList
	var nodes corev1.NodeList
	err := errors.Join(
		listOf(ctx, r, &daemonSets, "daemon sets"),
		listOf(ctx, r, &deployments, "deployments"),
		listOf(ctx, r, &pods, "pods"),
		listIn(ctx, r, &nodes, "", "nodes"),
	)
	s.daemonSets, s.deployments, s.pods, s.nodes = daemonSets.Items, deployments.Items, pods.Items, nodes.Items
	return err
}

// listOf lists what is in the namespace of a joined cluster's agents.
func listOf(ctx context.Context, r client.Reader, list client.ObjectList, what string) error {
	return listIn(ctx, r, list, submarinerv1.OperatorNamespace, what)
}

// listIn lists objects; a kind the API server does not know has none.
func listIn(ctx context.Context, r client.Reader, list client.ObjectList, namespace, what string) error {
	if err := r.List(ctx, list, client.InNamespace(namespace)); err != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("reading the %s: %w", what, err)
	}
	return nil
}

// unique returns the different values of list but "", sorted.
func unique(list []string) []string {
	list = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == "" })
	slices.SortFunc(list, strings.Compare)
	return slices.Compact(list)
}
