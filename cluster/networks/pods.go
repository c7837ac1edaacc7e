package networks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"subctl/internal/kube"
)

// The names of ConfigMaps that signs are in, and the kinds of objects.
const (
	ciliumConfig = "cilium-config"
	ipPool       = "IPPool"
)

// configMaps are the ConfigMaps that signs are in, except Cilium's, which can be in any namespace.
var configMaps = []string{"antrea-config", "kube-proxy", "kube-proxy-config"}

// evidence reads what DetectPlugin looks at. What the user may not read is skipped, and noted.
func evidence(ctx context.Context, c client.Reader, nodes []corev1.Node) (Evidence, error) {
	e := Evidence{
		Nodes: nodes, ConfigMaps: map[string]corev1.ConfigMap{}, Objects: map[string][]unstructured.Unstructured{},
		Unread: map[string]bool{},
	}
	// note returns nil for what does not exist, or may not be read.
	note := func(name string, err error) error {
		if apierrors.IsForbidden(err) {
			e.Unread[name] = true
		}
		if err == nil || kube.Unreadable(err) {
			return nil
		}
		return fmt.Errorf("reading %s: %w", name, err)
	}
	list := &appsv1.DaemonSetList{}
	if err := note(daemonSets, c.List(ctx, list)); err != nil {
		return Evidence{}, err
	}
	e.DaemonSets = ofPlugins(list.Items)
	pods := &corev1.PodList{}
	kubeProxy := client.MatchingLabels{"component": "kube-proxy"}
	if err := note(proxies, c.List(ctx, pods, client.InNamespace(metav1.NamespaceSystem), kubeProxy)); err != nil {
		return Evidence{}, err
	}
	e.Proxies = pods.Items
	keys := []client.ObjectKey{{Namespace: ciliumNamespace(e.DaemonSets), Name: ciliumConfig}}
	for _, name := range configMaps {
		keys = append(keys, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name})
	}
	for _, key := range keys {
		cm, err := configMap(ctx, c, key.Namespace, key.Name)
		if err == nil {
			e.ConfigMaps[key.Name] = *cm
		}
		if err := note(key.Name, err); err != nil {
			return Evidence{}, err
		}
	}
	for _, kind := range []string{ipPool, "FelixConfiguration"} {
		objects, err := fromCalicoAPI(ctx, c, kind)
		if err := note(kind, err); err != nil {
			return Evidence{}, err
		}
		e.Objects[kind] = objects
	}
	installations := &unstructured.UnstructuredList{}
	installations.SetGroupVersionKind(schema.GroupVersionKind{
		Group: "operator.tigera.io", Version: "v1", Kind: "InstallationList",
	})
	if err := note("Installation", c.List(ctx, installations)); err != nil {
		return Evidence{}, err
	}
	e.Objects["Installation"] = installations.Items
	return e, nil
}

// ofPlugins returns the DaemonSets that may be of a network plugin. Users of a namespace can give
// one its name, and even the network of nodes; but pods of it exist only if its namespace may use
// that network.
func ofPlugins(list []appsv1.DaemonSet) []appsv1.DaemonSet {
	return slices.DeleteFunc(list, func(ds appsv1.DaemonSet) bool {
		return ds.Namespace != metav1.NamespaceSystem &&
			(!ds.Spec.Template.Spec.HostNetwork || ds.Status.CurrentNumberScheduled == 0)
	})
}

// ciliumNamespace returns the namespace of Cilium: people install it in several.
func ciliumNamespace(list []appsv1.DaemonSet) string {
	for _, ds := range list {
		if ds.Name == "cilium" {
			return ds.Namespace
		}
	}
	return metav1.NamespaceSystem
}

// fromCalico reads Calico's address pools, and those disabled ones that still have pods.
func fromCalico(ctx context.Context, c client.Reader) (Found, error) {
	found, disabled, err := calicoPools(ctx, c)
	if err != nil || len(disabled) == 0 {
		return found, err
	}
	used, err := withPods(ctx, c, disabled)
	if err != nil && !kube.Unreadable(err) {
		return Found{}, err
	}
	found.CIDRs = append(found.CIDRs, used...)
	return found, nil
}

// fromEnabledPools is fromCalico for those who need not read pods.
func fromEnabledPools(ctx context.Context, c client.Reader) (Found, error) {
	found, _, err := calicoPools(ctx, c)
	return found, err
}

func calicoPools(ctx context.Context, c client.Reader) (found Found, disabled []netip.Prefix, err error) {
	pools, err := fromCalicoAPI(ctx, c, ipPool)
	if err != nil {
		return Found{}, nil, err
	}
	found.From = "Calico's IPPools"
	for _, pool := range pools {
		cidr, _, _ := unstructured.NestedString(pool.Object, "spec", "cidr")
		switch {
		case isForPods(pool):
			found.CIDRs = append(found.CIDRs, Parse(cidr)...)
		case isLeftByPods(pool):
			disabled = append(disabled, Parse(cidr)...)
		}
	}
	return found, disabled, nil
}

// podsPage is how many pods are read at once: a cluster may have very many.
const podsPage = 500

// withPods returns the networks that have the address of a pod.
func withPods(ctx context.Context, c client.Reader, list []netip.Prefix) (used []netip.Prefix, err error) {
	for next := ""; len(list) > 0; {
		pods := &corev1.PodList{}
		if err := c.List(ctx, pods, client.Limit(podsPage), client.Continue(next)); err != nil {
			return nil, err
		}
		for _, pod := range pods.Items {
			for _, ip := range pod.Status.PodIPs {
				addr, err := netip.ParseAddr(ip.IP)
				i := slices.IndexFunc(list, func(p netip.Prefix) bool { return p.Contains(addr) })
				if err == nil && i >= 0 && !pod.Spec.HostNetwork {
					used = append(used, list[i])
					list = slices.Delete(list, i, i+1)
				}
			}
		}
		if next = pods.Continue; next == "" {
			break
		}
	}
	return used, nil
}

// fromCalicoAPI returns Calico's objects of a kind. Calico keeps them in a group of its own,
// and recent versions without an API server of Calico's in the group of that server.
func fromCalicoAPI(ctx context.Context, c client.Reader, kind string) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(
		schema.GroupVersionKind{Group: "crd.projectcalico.org", Version: "v1", Kind: kind + "List"})
	err := c.List(ctx, list)
	if err == nil && len(list.Items) > 0 || err != nil && !kube.NotThere(err) {
		return list.Items, err
	}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "projectcalico.org", Version: "v3", Kind: kind + "List"})
	return list.Items, c.List(ctx, list)
}

// fromCilium reads the address pool of Cilium. In IPAM mode "kubernetes" Cilium has none: it
// uses the pod networks of the nodes.
func fromCilium(ctx context.Context, c client.Reader) (Found, error) {
	list := &appsv1.DaemonSetList{}
	if err := c.List(ctx, list); err != nil && !kube.Unreadable(err) {
		return Found{}, err
	}
	cm, err := configMap(ctx, c, ciliumNamespace(ofPlugins(list.Items)), ciliumConfig)
	if err != nil || !strings.HasPrefix(cm.Data["ipam"], "cluster-pool") {
		return Found{}, err
	}
	pool := strings.Join(strings.Fields(cm.Data["cluster-pool-ipv4-cidr"]), ",")
	return Found{Parse(pool), "ConfigMap " + cm.Namespace + "/cilium-config"}, nil
}

// fromFlannel reads flannel's configuration.
func fromFlannel(ctx context.Context, c client.Reader) (Found, error) {
	for _, ns := range []string{"kube-flannel", "kube-system"} {
		cm, err := configMap(ctx, c, ns, "kube-flannel-cfg")
		if err != nil {
			if kube.Unreadable(err) {
				continue
			}
			return Found{}, err
		}
		var conf struct{ Network string }
		if json.Unmarshal([]byte(cm.Data["net-conf.json"]), &conf) == nil {
			return Found{Parse(conf.Network), "ConfigMap " + ns + "/kube-flannel-cfg"}, nil
		}
	}
	return Found{}, nil
}

// fromKindnet reads the configuration that kind gives its network plugin.
func fromKindnet(ctx context.Context, c client.Reader) (Found, error) {
	ds := &appsv1.DaemonSet{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "kindnet"}, ds); err != nil {
		return Found{}, err
	}
	for _, container := range ds.Spec.Template.Spec.Containers {
		for _, env := range container.Env {
			if env.Name == "POD_SUBNET" {
				return Found{Parse(env.Value), "POD_SUBNET of DaemonSet kube-system/kindnet"}, nil
			}
		}
	}
	return Found{}, nil
}

func fromControllerManager(ctx context.Context, c client.Reader) (Found, error) {
	return fromPodFlag(ctx, c, "component", "kube-controller-manager", "--cluster-cidr")
}

// fromKubeProxy reads the configuration of kube-proxy, or its command line.
func fromKubeProxy(ctx context.Context, c client.Reader) (Found, error) {
	cm, err := configMap(ctx, c, "kube-system", "kube-proxy")
	if err != nil && !kube.Unreadable(err) {
		return Found{}, err
	}
	if err == nil {
		var conf struct {
			ClusterCIDR string `json:"clusterCIDR"`
		}
		if yaml.Unmarshal([]byte(cm.Data["config.conf"]), &conf) == nil && len(Parse(conf.ClusterCIDR)) > 0 {
			return Found{Parse(conf.ClusterCIDR), "ConfigMap kube-system/kube-proxy"}, nil
		}
	}
	return fromPodFlag(ctx, c, "k8s-app", "kube-proxy", "--cluster-cidr")
}

// kubeadm reads one field of the networking configuration of kubeadm.
func kubeadm(field string) source {
	return func(ctx context.Context, c client.Reader) (Found, error) {
		cm, err := configMap(ctx, c, "kube-system", "kubeadm-config")
		if err != nil {
			return Found{}, err
		}
		var conf struct {
			Networking map[string]any `json:"networking"`
		}
		if yaml.Unmarshal([]byte(cm.Data["ClusterConfiguration"]), &conf) != nil {
			return Found{}, nil
		}
		value, _ := conf.Networking[field].(string)
		return Found{Parse(value), "ConfigMap kube-system/kubeadm-config"}, nil
	}
}

// fromPodFlag reads a flag from the command line of pods in kube-system.
func fromPodFlag(ctx context.Context, c client.Reader, label, value, flag string) (Found, error) {
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace("kube-system"), client.MatchingLabels{label: value}); err != nil {
		return Found{}, err
	}
	for _, pod := range pods.Items {
		for _, container := range pod.Spec.Containers {
			words := append(append([]string{}, container.Command...), container.Args...)
			if found := Parse(flagIn(words, flag)); len(found) > 0 {
				return Found{found, flag + " of " + value}, nil
			}
		}
	}
	return Found{}, nil
}

// flagIn returns the value of a flag on a command line, written "--flag=value" or
// "--flag value"; the line may also be one word for a shell.
func flagIn(words []string, flag string) string {
	words = strings.Fields(strings.Join(words, " "))
	for i, w := range words {
		if v, ok := strings.CutPrefix(w, flag+"="); ok {
			return strings.Trim(v, `"'`)
		}
		if w == flag && i+1 < len(words) {
			return strings.Trim(words[i+1], `"'`)
		}
	}
	return ""
}

func configMap(ctx context.Context, c client.Reader, namespace, name string) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cm)
	return cm, err
}
