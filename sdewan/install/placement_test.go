package install

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"subctl/cluster"
)

// The controller, the webhooks and CNFs run on Linux nodes that are not virtual. The first two do
// so whatever the taints of the nodes are, and leave failed nodes within seconds; a CNF, which is
// the user's workload, runs on no node that is cordoned. On OpenShift, the pods are admitted.
func TestPodsRunWhereTheyCan(t *testing.T) {
	cnf, err := edge().Deployment()
	require.NoError(t, err)
	objects, err := Render(Options{Replicas: 1, Platform: cluster.Platform{SCC: true}})
	require.NoError(t, err)
	deployments := []*appsv1.Deployment{cnf}
	constraints := map[string]string{}
	quotas := 0
	for _, o := range objects {
		switch o := o.(type) {
		case *appsv1.Deployment:
			deployments = append(deployments, o)
		case *corev1.ResourceQuota:
			quotas++
		case *rbacv1.Role:
			for _, r := range o.Rules {
				if r.Resources[0] == "securitycontextconstraints" {
					constraints[o.Name] = r.ResourceNames[0]
				}
			}
		}
	}
	require.Len(t, deployments, 3)
	for _, d := range deployments {
		pod := d.Spec.Template.Spec
		require.Equal(t, cluster.SuitedNodes().NodeAffinity, pod.Affinity.NodeAffinity, d.Name)
		_, ok := cluster.Tolerated([]corev1.Taint{
			{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
		},
			pod.Tolerations)
		require.Equal(t, d != cnf, ok, d.Name)
		if d == cnf {
			continue
		}
		require.LessOrEqual(t, *pod.Tolerations[0].TolerationSeconds, int64(30), d.Name)
	}
	require.Equal(t, map[string]string{ControllerName: "nonroot-v2", WebhookName: "nonroot-v2"}, constraints)
	require.Equal(t, 1, quotas, "GKE permits the priority class of the pods in no other namespace")
}
