package kubeapi

import "context"

// MultusUser is as whom Multus speaks to the API server.
const MultusUser = "multus"

// EnsureMultus makes the kind NetworkAttachmentDefinition and the rights of Multus: what its own
// manifest has, except its pods, as the lab puts the plugin into every node.
func (c *Client) EnsureMultus(ctx context.Context) error {
	const rbac, group = "/apis/rbac.authorization.k8s.io/v1/", "k8s.cni.cncf.io"
	return c.ensureAll(
		ctx,
		at{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", m{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": m{"name": "network-attachment-definitions." + group},
			"spec": m{
				"group": group, "scope": "Namespaced",
				"names": m{
					"plural": "network-attachment-definitions", "singular": "network-attachment-definition",
					"kind": "NetworkAttachmentDefinition", "shortNames": []string{"net-attach-def"},
				},
				"versions": []m{{"name": "v1", "served": true, "storage": true, "schema": m{"openAPIV3Schema": m{
					"type": "object",
					"properties": m{"spec": m{"type": "object", "properties": m{"config": m{
						"type": "string", "description": "The configuration of a CNI plugin, as JSON.",
					}}}},
				}}}},
			},
		}},
		at{rbac + "clusterroles", m{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": m{"name": MultusUser},
			"rules": []m{
				{"apiGroups": []string{group}, "resources": []string{"*"}, "verbs": []string{"get", "list", "watch"}},
				{
					"apiGroups": []string{""},
					"resources": []string{"pods", "pods/status"},
					"verbs":     []string{"get", "list", "update", "watch"},
				},
				{
					"apiGroups": []string{"", "events.k8s.io"},
					"resources": []string{"events"},
					"verbs":     []string{"create", "patch", "update"},
				},
			},
		}},
		at{rbac + "clusterrolebindings", m{
			"apiVersion": "rbac.authorization.k8s.io/v1",
			"kind":       "ClusterRoleBinding",
			"metadata":   m{"name": MultusUser},
			"roleRef":    m{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": MultusUser},
			"subjects":   []m{{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": MultusUser}},
		}},
	)
}
