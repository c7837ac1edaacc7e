package cmd

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"subctl/agent/mesh/report"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/cli"
)

// allocation is a condition Allocated.
func allocation(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
	return []metav1.Condition{{Type: submarinerv1.ConditionAllocated, Status: status, Reason: reason, Message: message}}
}

// old is a name in a namespace, of an object that has been there for an hour.
func old(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}
}

// clusterEgress returns the shared addresses of gateway gw-1, whose network is a /28.
func clusterEgress(held ...string) *submarinerv1.ClusterGlobalEgressIP {
	o := &submarinerv1.ClusterGlobalEgressIP{ObjectMeta: old("", "gw-1"+submarinerv1.GatewayEgressSuffix)}
	o.Status.AllocatedIPs = held
	o.Status.Conditions = allocation(metav1.ConditionTrue, submarinerv1.ReasonAllocated, "allocated")
	return o
}

func egressOf(
	name string,
	selector *metav1.LabelSelector,
	conditions []metav1.Condition,
	held ...string,
) *submarinerv1.GlobalEgressIP {
	o := &submarinerv1.GlobalEgressIP{ObjectMeta: old("shop", name)}
	o.Spec.PodSelector = selector
	o.Status.AllocatedIPs = held
	o.Status.Conditions = conditions
	return o
}

func ingressOf(
	name string,
	target submarinerv1.GlobalIngressTarget,
	conditions []metav1.Condition,
	held string,
) *submarinerv1.GlobalIngressIP {
	o := &submarinerv1.GlobalIngressIP{ObjectMeta: old("shop", name)}
	o.Spec.Target = target
	o.Spec.ServiceRef = &corev1.LocalObjectReference{Name: "db"}
	switch target {
	case submarinerv1.TargetHeadlessServicePod:
		o.Spec.PodRef = &corev1.LocalObjectReference{Name: strings.TrimPrefix(name, "pod-")}
	case submarinerv1.TargetHeadlessServiceEndpoints:
		o.Annotations = map[string]string{submarinerv1.HeadlessEndpointAnnotation: "10.0.9.9"}
	case submarinerv1.TargetClusterIPService:
		o.Spec.ServiceRef.Name = name
	}
	o.Status.AllocatedIP = held
	o.Status.Conditions = conditions
	return o
}

// globalMember returns what cluster west, or another one, holds of itself and of a cluster that it
// knows.
func globalMember(id, network, other, otherNetwork string, objs ...client.Object) []client.Object {
	sub := submariner(id)
	sub.Spec.GlobalCIDR = network
	known := member(submarinerv1.OperatorNamespace, other, "172.18.0.9", "vxlan", nil)
	known[0].(*submarinerv1.Cluster).Spec.GlobalCIDR = []string{otherNetwork}
	if otherNetwork == "" {
		known[0].(*submarinerv1.Cluster).Spec.GlobalCIDR = []string{}
	}
	known[1].(*submarinerv1.Endpoint).Spec.AllocatedIPs = []string{
		strings.TrimSuffix(strings.Split(otherNetwork, "/")[0], "0") + "1",
	}
	agent := &appsv1.Deployment{ObjectMeta: named("submariner-globalnet"), Status: appsv1.DeploymentStatus{
		Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1,
	}}
	return append(append(objs, sub, agent), known...)
}

// globalWorlds are situations of clusters with global networks.
func globalWorlds() map[string]world {
	good := allocation(metav1.ConditionTrue, submarinerv1.ReasonAllocated, "allocated")
	busy := gateway("west", "gw-1", time.Second)
	busy.Status.GlobalEgress = []submarinerv1.EgressUse{
		{Address: "242.1.0.2", Connections: 52_500, Busiest: "tcp 242.2.0.9:80", BusiestConnections: 52_429},
		{Address: "242.1.0.1", Connections: 17, Busiest: "udp 242.2.0.9:53", BusiestConnections: 4},
	}
	dead := gateway("west", "gw-0", time.Minute)
	dead.Status.GlobalEgress = []submarinerv1.EgressUse{
		{Address: "242.1.0.3", Connections: 65_000, Busiest: "tcp 242.2.0.9:80", BusiestConnections: 65_000},
	}
	calm := gateway("west", "gw-1", time.Second)
	calm.Status.GlobalEgress = busy.Status.GlobalEgress[1:]
	twice := gateway("west", "gw-1", time.Second)
	twice.Status.Conditions = []metav1.Condition{
		{
			Type:    report.ConditionEgressDistinct,
			Status:  metav1.ConditionFalse,
			Reason:  "SameAddress",
			Message: "gateways gw-e, gw-f of cluster east announce the same address 242.2.0.1\nand\x1b[2J more",
		},
	}
	twin := twice.DeepCopy()
	twin.Name = "gw-2"
	all := func(gateways ...client.Object) []client.Object {
		return globalMember("west", "242.1.0.0/28", "east", "242.2.0.0/16", append(
			gateways,
			clusterEgress("242.1.0.1", "242.1.0.2"),
			egressOf("payments", nil, good, "242.1.0.14"),
			egressOf("web", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, good, "242.1.0.12",
				"242.1.0.13"),
			ingressOf("web", submarinerv1.TargetClusterIPService, good, "242.1.0.11"),
			ingressOf("pod-db-0", submarinerv1.TargetHeadlessServicePod, good, "242.1.0.10"),
			ingressOf("ep-db", submarinerv1.TargetHeadlessServiceEndpoints, good, "242.1.0.9"),
		)...)
	}
	refused := allocation(metav1.ConditionFalse, submarinerv1.ReasonInvalidInput,
		"podSelector is not valid: \x1b[31mred")
	waiting := allocation(metav1.ConditionFalse, submarinerv1.ReasonPoolExhausted,
		"the global network has no free address")
	sick := globalMember(
		"west",
		"242.1.0.0/28",
		"east",
		"",
		clusterEgress("242.1.0.1", "242.1.0.2", "242.1.0.3", "242.1.0.4", "242.1.0.5", "242.1.0.6", "242.1.0.7",
			"242.1.0.8"),
		egressOf("bad", nil, refused),
		egressOf("big", nil, good, "242.1.0.9", "242.1.0.10", "242.1.0.11", "242.1.0.12", "242.1.0.13", "242.1.0.14"),
		egressOf("nobody-sees-it", nil, nil),
		egressOf("none", nil,
			allocation(metav1.ConditionFalse, submarinerv1.ReasonNothingRequested, "it requests no address")),
	)
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		sick = append(sick, ingressOf(name, submarinerv1.TargetClusterIPService, waiting, ""))
	}
	for _, o := range sick { // its agent does not run
		if d, ok := o.(*appsv1.Deployment); ok {
			d.Status = appsv1.DeploymentStatus{}
		}
	}
	pending := &corev1.Pod{
		ObjectMeta: named("submariner-globalnet-x7k2p"),
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Message: "0/2 nodes are available: 2 Insufficient memory.",
		}}},
	}
	pending.Labels = map[string]string{"app": "submariner-globalnet"}
	sick = append(sick, pending)
	young := egressOf("young", nil, nil)
	young.CreationTimestamp = metav1.NewTime(now.Add(-time.Second))
	without := submariner("west")
	without.Spec.GlobalCIDR = ""
	east := globalMember("east", "242.2.0.0/16", "west", "242.1.0.0/28", gateway("east", "gw-e", time.Second),
		ingressOf("db", submarinerv1.TargetClusterIPService, good, "242.2.0.9"))
	done := gateway("west", "gw-1", time.Second)
	late := gateway("west", "gw-2", time.Second)
	done.Status.Programmed = &submarinerv1.ProgrammedVersions{
		ClusterGlobalEgressIPs: "2000", GlobalEgressIPs: "2000", GlobalIngressIPs: "2000",
	}
	late.Status.Programmed = &submarinerv1.ProgrammedVersions{
		ClusterGlobalEgressIPs: "2000", GlobalEgressIPs: "2000", GlobalIngressIPs: "1",
	}
	programmed := all(done, late)
	for _, o := range programmed {
		switch o := o.(type) {
		case *v1alpha1.Submariner:
			o.Spec.MultiActiveGatewayEnabled = true
		case *submarinerv1.GlobalEgressIP:
			if o.Name == "payments" { // the default of one address, beside two gateways
				o.Status.Conditions = append(slices.Clone(o.Status.Conditions),
					metav1.Condition{
						Type: submarinerv1.ConditionSelects, Status: metav1.ConditionFalse,
						Reason:  submarinerv1.ReasonFewAddresses,
						Message: "it has 1 of the 2 addresses that its gateways need to use one each",
					})
			}
		}
	}
	return map[string]world{
		"programmed": {"west": programmed},
		"well":       {"west": all(calm)},
		"busy":       {"west": all(busy, dead)},
		"twice":      {"west": all(twice, twin)},
		"sick":       {"west": sick},
		"young":      {"west": globalMember("west", "242.1.0.0/28", "east", "", young)},
		"without":    {"west": {without}},
		"two":        {"west": all(calm), "east": east},
		"empty":      {"west": nil},
	}
}

// Addresses of all kinds of owners, what is wrong with them, and whose an address is, from one
// cluster or from two.
func TestShowGlobalnet(t *testing.T) {
	for _, line := range []string{
		"programmed show globalnet",
		"programmed show globalnet -o json",
		"well show globalnet",
		"well show globalnet -o wide",
		"well show globalnet -o json",
		"busy show globalnet",
		"twice show globalnet",
		"sick show globalnet",
		"young show globalnet",
		"without show globalnet",
		"without show globalnet -o json",
		"empty show globalnet",
		"two show globalnet",
		"two show globalnet --who 242.1.0.10",
		"two show globalnet --who 242.1.0.9",
		"two show globalnet --who 242.1.0.2 -o json",
		"two show globalnet --who 242.1.0.13",
		"two show globalnet --who 242.2.0.9 -o wide",
		"two show globalnet --who 242.2.0.9 --context west",
		"two show globalnet --who 242.2.0.1 --context west -o wide",
		"two show globalnet --who 242.2.7.7",
		"two show globalnet --who 242.7.0.1",
		"two show globalnet --who 242.1.0.0",
		"two show globalnet --who 242.1.0.15",
		"two show globalnet --who 242.2.0.0 --context west",
		"without show globalnet --who 242.1.0.9",
		"empty show globalnet --who 242.1.0.9",
	} {
		t.Run(line, func(t *testing.T) {
			words := strings.Fields(line)
			w := globalWorlds()[words[0]]
			contexts := []string{"west"}
			if _, ok := w["east"]; ok {
				contexts = append(contexts, "east")
			}
			name := strings.ReplaceAll(strings.Join(append([]string{words[0]}, words[3:]...), "_"), "--", "")
			golden(t, "globalnet/"+name, runIn(t, w, contexts, words[1:]...))
		})
	}
}

// A user who may not read the objects of a cluster learns from it only what every cluster
// announces: which cluster has an address, but not which namespace, Service or pods. With the
// rights on one cluster, he learns nothing of the other.
func TestShowGlobalnetWhoIsAllowed(t *testing.T) {
	for _, test := range []struct {
		name, context string // the cluster with the address denies
		denied        []string
		code          int
		want, not     string
	}{
		{
			"the addresses",
			"east",
			[]string{"GlobalIngressIPList", "GlobalEgressIPList", "ClusterGlobalEgressIPList"},
			cli.ExitDone,
			"242.2.0.9   east",
			"shop",
		},
		{"one kind", "east", []string{"GlobalIngressIPList"}, cli.ExitDone, "242.2.0.9   east", "shop"},
		{
			"everything",
			"east",
			[]string{"GlobalIngressIPList", "SubmarinerList"},
			cli.ExitDone,
			"242.2.0.9   east",
			"shop",
		},
		{"nothing", "", nil, cli.ExitDone, "Service shop/db", "only cluster"},
		{
			"the other cluster",
			"west",
			[]string{"GlobalIngressIPList", "ClusterList", "EndpointList"},
			cli.ExitDone,
			"Service shop/db",
			"only cluster",
		},
	} {
		g, stdout, stderr := testGlobals(t, globalWorlds()["two"], "west", "east")
		connect := g.Connect
		g.Connect = func(ctx context.Context, cfg *rest.Config) (client.Client, error) {
			c, err := connect(ctx, cfg)
			if err != nil || !strings.Contains(cfg.Host, test.context+".test") || test.context == "" {
				return c, err
			}
			return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
				List: func(
					ctx context.Context,
					c client.WithWatch,
					list client.ObjectList,
					opts ...client.ListOption,
				) error {
					gvk, err := c.GroupVersionKindFor(list)
					require.NoError(t, err)
					for _, denied := range test.denied {
						if gvk.Kind == denied {
							return apierrors.NewForbidden(schema.GroupResource{Resource: denied}, "",
								errors.New("alice may not"))
						}
					}
					return c.List(ctx, list, opts...)
				},
			}), nil
		}
		require.Equal(t, test.code, run(t.Context(), g, strings.Fields("show globalnet --who 242.2.0.9")), "%s: %s",
			test.name, stderr)
		all := strings.Join(strings.Fields(stdout.String()+stderr.String()), " ")
		require.Contains(t, all, strings.Join(strings.Fields(test.want), " "), test.name)
		require.NotContains(t, all, test.not, test.name)
	}
}
