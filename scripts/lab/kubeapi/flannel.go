package kubeapi

import (
	"context"

	"subctl/lab/plan"
)

// FlannelUser is as whom flanneld speaks to the API server.
const FlannelUser = "flannel"

// EnsureFlannel makes the objects of flannel's own manifest (kube-flannel.yml), except its pods:
// the lab runs flanneld as a process of the node, as a user and not as a service account.
func (c *Client) EnsureFlannel(ctx context.Context, cluster plan.Cluster) error {
	const rbac, namespace = "/apis/rbac.authorization.k8s.io/v1/", "kube-flannel"
	return c.ensureAll(
		ctx,
		at{rbac + "clusterroles", m{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": m{"name": FlannelUser},
			"rules": []m{
				{"apiGroups": []string{""}, "resources": []string{"pods"}, "verbs": []string{"get"}},
				{"apiGroups": []string{""}, "resources": []string{"nodes"}, "verbs": []string{"get", "list", "watch"}},
				{"apiGroups": []string{""}, "resources": []string{"nodes/status"}, "verbs": []string{"patch"}},
			},
		}},
		at{rbac + "clusterrolebindings", m{
			"apiVersion": "rbac.authorization.k8s.io/v1",
			"kind":       "ClusterRoleBinding",
			"metadata":   m{"name": FlannelUser},
			"roleRef":    m{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": FlannelUser},
			"subjects":   []m{{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": FlannelUser}},
		}},
		at{"/api/v1/namespaces", m{"apiVersion": "v1", "kind": "Namespace", "metadata": m{"name": namespace}}},
		at{"/api/v1/namespaces/" + namespace + "/configmaps", m{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": m{"name": "kube-flannel-cfg", "namespace": namespace},
			"data": m{"net-conf.json": cluster.FlannelConfig()},
		}},
	)
}
