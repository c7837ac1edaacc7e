package cluster_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"subctl/cluster"
	"subctl/cluster/clustertest"
)

// pods returns the pod templates of all workloads of a cluster with a global network, by name.
func pods(t *testing.T, p cluster.Platform) map[string]corev1.PodTemplateSpec {
	t.Helper()
	objs, err := p.Everything()
	require.NoError(t, err)
	out := map[string]corev1.PodTemplateSpec{}
	for _, obj := range objs {
		switch o := obj.(type) {
		case *appsv1.DaemonSet:
			out[o.Name] = o.Spec.Template
		case *appsv1.Deployment:
			out[o.Name] = o.Spec.Template
		}
	}
	trial := cluster.Trial(clustertest.Submariner(), "n1")
	out["trial"] = corev1.PodTemplateSpec{ObjectMeta: trial.ObjectMeta, Spec: trial.Spec}
	require.Len(t, out, 7)
	return out
}

// selects reports whether the affinity of a pod lets it run on a node, as the scheduler and the
// DaemonSet controller decide it.
func selects(t *testing.T, pod corev1.PodSpec, n corev1.Node) bool {
	t.Helper()
	operators := map[corev1.NodeSelectorOperator]selection.Operator{
		corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
	}
	terms := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	require.Len(t, terms, 1)
	for _, r := range terms[0].MatchExpressions {
		want, err := labels.NewRequirement(r.Key, operators[r.Operator], r.Values)
		require.NoError(t, err)
		if !want.Matches(labels.Set(n.Labels)) {
			return false
		}
	}
	return true
}

// No pod of ours is scheduled on a Windows node or on a virtual node, whose pods never start.
func TestNoPodOnUnsuitedNodes(t *testing.T) {
	all := pods(t, cluster.Platform{})
	for name, test := range map[string]struct {
		labels map[string]string
		want   string // empty: pods run there
	}{
		"Linux":                       {map[string]string{}, ""},
		"Linux in an EC2 node group":  {map[string]string{"eks.amazonaws.com/compute-type": "ec2"}, ""},
		"a type of the administrator": {map[string]string{"type": "gpu"}, ""},
		"Windows":                     {map[string]string{corev1.LabelOSStable: "windows"}, "runs windows"},
		"virtual-kubelet": {
			map[string]string{"type": "virtual-kubelet"}, "is virtual: type=virtual-kubelet",
		},
		"kwok": {map[string]string{"type": "kwok"}, "is virtual: type=kwok"},
		"Fargate": {
			map[string]string{"eks.amazonaws.com/compute-type": "fargate"},
			"is virtual: eks.amazonaws.com/compute-type=fargate",
		},
		"Liqo": {
			map[string]string{"liqo.io/type": "virtual-node"}, "is virtual: liqo.io/type=virtual-node",
		},
		"AKS on container instances": {
			map[string]string{"virtualization": "virtualnode2"}, "is virtual: virtualization=virtualnode2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := clustertest.Node("n1", "10.0.0.1")
			for k, v := range test.labels {
				n.Labels[k] = v
			}
			require.Equal(t, test.want, cluster.NoPods(n))
			for workload, pod := range all {
				require.Equal(t, test.want == "", selects(t, pod.Spec, n), workload)
			}
		})
	}
	bare := corev1.Node{}
	require.Equal(t, "has no label kubernetes.io/os", cluster.NoPods(bare))
	tainted := clustertest.Node("n1", "10.0.0.1")
	tainted.Spec.Taints = []corev1.Taint{
		{Key: "virtual-kubelet.io/provider", Value: "azure", Effect: corev1.TaintEffectNoSchedule},
	}
	require.Equal(t, "is virtual: taint virtual-kubelet.io/provider", cluster.NoPods(tainted),
		"no label says so, but it is not waited for")
}

// Every workload runs in a cluster whose nodes all have taints. Pods of Deployments leave a node
// that fails within seconds.
func TestTaintsKeepNoWorkloadFromRunning(t *testing.T) {
	taints := []corev1.Taint{
		{Key: "dedicated", Value: "net", Effect: corev1.TaintEffectNoSchedule},
		{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
		{Key: "maintenance", Effect: corev1.TaintEffectNoExecute},
	}
	for name, pod := range pods(t, cluster.Platform{}) {
		_, ok := cluster.Tolerated(taints, pod.Spec.Tolerations)
		require.True(t, ok, name)
		if name != cluster.GlobalnetName {
			continue
		}
		for i, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
			require.Equal(t, key, pod.Spec.Tolerations[i].Key,
				"before the general tolerations: the first one that matches counts")
			require.LessOrEqual(t, *pod.Spec.Tolerations[i].TolerationSeconds, int64(30))
		}
	}
	taint, ok := cluster.Tolerated(taints, []corev1.Toleration{
		{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "net"},
	})
	require.False(t, ok)
	require.Equal(t, "node-role.kubernetes.io/control-plane", taint.Key)
}

// A node that is not Ready stops no rollout: neither that of the route agents, with one of two
// nodes, nor that of the gateways, whose healthy ones are replaced one at a time nevertheless.
func TestBrokenNodesStopNoRollout(t *testing.T) {
	for _, broken := range []int{0, 1} {
		objs, err := cluster.Platform{BrokenGateways: broken}.Render(clustertest.Submariner())
		require.NoError(t, err)
		for _, obj := range objs {
			ds, ok := obj.(*appsv1.DaemonSet)
			if !ok {
				continue
			}
			most := ds.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable
			if ds.Name == cluster.GatewayName {
				require.Equal(t, 1+broken, most.IntValue())
			} else {
				require.Equal(t, "51%", most.StrVal) // of two nodes: two, as Kubernetes rounds up
			}
		}
	}
}

// On OpenShift, the pods of each account are admitted by SecurityContextConstraints; elsewhere
// nobody gets a right to them.
func TestSecurityContextConstraints(t *testing.T) {
	for _, has := range []bool{false, true} {
		objs, err := cluster.Platform{SCC: has}.Everything()
		require.NoError(t, err)
		got := map[string][]string{}
		for _, obj := range objs {
			role, ok := obj.(*rbacv1.Role)
			if !ok {
				continue
			}
			for _, r := range role.Rules {
				if r.Resources[0] == "securitycontextconstraints" {
					require.Equal(t, []string{"use"}, r.Verbs)
					got[role.Name] = r.ResourceNames
				}
			}
		}
		want := map[string][]string{}
		if has {
			want = map[string][]string{
				cluster.GatewayName: {"privileged"}, cluster.RouteAgentName: {"privileged"},
				cluster.GatewayNodesName: {"nonroot-v2"}, cluster.GlobalnetName: {"nonroot-v2"},
				cluster.ServiceDiscoveryName: {"nonroot-v2"}, cluster.DNSName: {"nonroot-v2"},
			}
		}
		require.Equal(t, want, got)
	}
}

// The trial pod before an upgrade is the pod of a gateway in all that an API server or a kubelet
// judges.
func TestTrialIsAGateway(t *testing.T) {
	all := pods(t, cluster.Platform{})
	gateway := all[cluster.GatewayName].Spec
	trial := all["trial"].Spec
	require.Equal(t, "n1", trial.NodeName)
	require.Equal(t, corev1.RestartPolicyNever, trial.RestartPolicy)
	require.Equal(t, []string{"version"}, trial.Containers[0].Args)
	require.Empty(t, trial.Containers[0].Ports, "the running gateway has them")
	require.NotEqual(t, cluster.GatewayName, all["trial"].Labels["app"], "its DaemonSet does not take it for its own")
	trial.NodeName = ""
	trial.RestartPolicy = ""
	trial.TerminationGracePeriodSeconds = gateway.TerminationGracePeriodSeconds
	trial.Containers[0].Args = gateway.Containers[0].Args
	trial.Containers[0].Ports = gateway.Containers[0].Ports
	trial.Containers[0].Image = gateway.Containers[0].Image
	require.Equal(t, gateway, trial)
}
