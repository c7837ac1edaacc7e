package kubeapi

import (
	"context"

	"subctl/lab/plan"
)

// corefile is kubeadm's, except that a changed file is read after seconds, not after half a minute.
const corefile = `.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30
    loop
    reload 2s 1s
    loadbalance
}
`

// EnsureCoreDNS makes the objects of kubeadm's CoreDNS. The program is not in an image: pods mount
// it from their node, which costs neither time nor space.
func (c *Client) EnsureCoreDNS(ctx context.Context, cluster plan.Cluster) error {
	const (
		core, rbac = "/api/v1/namespaces/kube-system/", "/apis/rbac.authorization.k8s.io/v1/"
		name, role = "coredns", "system:coredns"
	)
	labels := m{"k8s-app": "kube-dns"}
	named := func(name string) m { return m{"name": name, "namespace": "kube-system", "labels": labels} }
	readOnly := []string{"list", "watch"}
	return c.ensureAll(
		ctx,
		// The API server makes it only when it has been ready for a moment.
		at{"/api/v1/namespaces", m{"apiVersion": "v1", "kind": "Namespace", "metadata": m{"name": "kube-system"}}},
		at{core + "serviceaccounts", m{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named(name)}},
		at{rbac + "clusterroles", m{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": m{"name": role},
			"rules": []m{
				{
					"apiGroups": []string{""},
					"resources": []string{"endpoints", "services", "pods", "namespaces"},
					"verbs":     readOnly,
				},
				{"apiGroups": []string{"discovery.k8s.io"}, "resources": []string{"endpointslices"}, "verbs": readOnly},
			},
		}},
		at{rbac + "clusterrolebindings", m{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": m{"name": role},
			"roleRef":  m{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
			"subjects": []m{{"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}},
		}},
		at{core + "configmaps", m{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": m{"name": name, "namespace": "kube-system"},
			"data": m{"Corefile": corefile},
		}},
		at{core + "services", m{
			"apiVersion": "v1", "kind": "Service",
			"metadata": m{
				"name":        "kube-dns",
				"namespace":   "kube-system",
				"annotations": m{"prometheus.io/port": "9153", "prometheus.io/scrape": "true"},
				"labels": m{
					"k8s-app":                       "kube-dns",
					"kubernetes.io/cluster-service": "true",
					"kubernetes.io/name":            "CoreDNS",
				},
			},
			"spec": m{
				"clusterIP": cluster.DNS().String(), "selector": labels,
				"ports": []m{
					{"name": "dns", "port": 53, "targetPort": 53, "protocol": "UDP"},
					{"name": "dns-tcp", "port": 53, "targetPort": 53, "protocol": "TCP"},
					{"name": "metrics", "port": 9153, "targetPort": 9153, "protocol": "TCP"},
				},
			},
		}},
		at{"/apis/apps/v1/namespaces/kube-system/deployments", m{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": named(name),
			"spec": m{
				"replicas": min(2, cluster.Nodes),
				"strategy": m{"type": "RollingUpdate", "rollingUpdate": m{"maxUnavailable": 1}},
				"selector": m{"matchLabels": labels},
				"template": m{"metadata": m{"labels": labels}, "spec": corednsPod(name)},
			},
		}},
	)
}

func corednsPod(account string) m {
	probe := func(port string, path string) m { return m{"httpGet": m{"path": path, "port": port, "scheme": "HTTP"}} }
	ready := probe("readiness-probe", "/ready")
	live := probe("liveness-probe", "/health")
	ready["periodSeconds"] = 1
	live["initialDelaySeconds"] = 60
	live["timeoutSeconds"] = 5
	live["failureThreshold"] = 5
	return m{
		"serviceAccountName": account,
		"priorityClassName":  "system-cluster-critical",
		"nodeSelector":       m{"kubernetes.io/os": "linux"},
		"dnsPolicy":          "Default",
		// Preferred by kubeadm. The nodes of the lab start together: the first one that is Ready
		// would get both pods.
		"affinity": m{"podAntiAffinity": m{"requiredDuringSchedulingIgnoredDuringExecution": []m{{
			"topologyKey": "kubernetes.io/hostname", "labelSelector": m{"matchLabels": m{"k8s-app": "kube-dns"}},
		}}}},
		"containers": []m{{
			"name": "coredns", "image": "lab.local/pause:1", "imagePullPolicy": "Never",
			"command": []string{"/coredns"}, "args": []string{"-conf", "/etc/coredns/Corefile"},
			"resources": m{"limits": m{"memory": "170Mi"}, "requests": m{"cpu": "100m", "memory": "70Mi"}},
			"volumeMounts": []m{
				{"name": "config-volume", "mountPath": "/etc/coredns", "readOnly": true},
				{"name": "program", "mountPath": "/coredns", "readOnly": true},
			},
			"ports": []m{
				{"name": "dns", "containerPort": 53, "protocol": "UDP"},
				{"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
				{"name": "metrics", "containerPort": 9153, "protocol": "TCP"},
				{"name": "liveness-probe", "containerPort": 8080, "protocol": "TCP"},
				{"name": "readiness-probe", "containerPort": 8181, "protocol": "TCP"},
			},
			"livenessProbe": live, "readinessProbe": ready,
			"securityContext": m{
				"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
				"capabilities": m{"add": []string{"NET_BIND_SERVICE"}, "drop": []string{"ALL"}},
			},
		}},
		"volumes": []m{
			{
				"name":      "config-volume",
				"configMap": m{"name": "coredns", "items": []m{{"key": "Corefile", "path": "Corefile"}}},
			},
			{"name": "program", "hostPath": m{"path": plan.NodeBin + "/coredns", "type": "File"}},
		},
	}
}
