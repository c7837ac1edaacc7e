package networks

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// A clue is what a sign looks for. Its String is Markdown for docs/cni.md.
type clue interface {
	find(Evidence) finding
	String() string
}

// finding is the result of looking for a clue.
type finding struct {
	state state
	// text is where the clue was found, or what the user may not read.
	text string
}

type state int

const (
	absent state = iota
	unread       // the user may not read what would tell
	present
)

func presentIn(text string) finding { return finding{present, text} }

// Evidence is the input of the signs. What does not exist, or is unknown, is empty.
type Evidence struct {
	DaemonSets []appsv1.DaemonSet
	Nodes      []corev1.Node
	// Proxies are the pods of kube-proxy in kube-system: some distributions have no DaemonSet for
	// it.
	Proxies []corev1.Pod
	// ConfigMaps are the ConfigMaps of configMaps, by name.
	ConfigMaps map[string]corev1.ConfigMap
	// Objects are the objects of objectKinds, by kind.
	Objects map[string][]unstructured.Unstructured
	// Unread has what the user may not read: "DaemonSets", names of ConfigMaps, kinds of objects.
	Unread map[string]bool
}

// daemonSet returns the DaemonSet with one of the names. The distribution RKE2 prefixes the names
// of its charts.
func (e Evidence) daemonSet(names ...string) (appsv1.DaemonSet, bool) {
	for _, ds := range e.DaemonSets {
		if slices.Contains(names, strings.TrimPrefix(ds.Name, "rke2-")) {
			return ds, true
		}
	}
	return appsv1.DaemonSet{}, false
}

// runs: the cluster has a DaemonSet with this name.
type runs string

func (r runs) String() string { return "DaemonSet `" + string(r) + "`" }

func (r runs) find(e Evidence) finding {
	if ds, ok := e.daemonSet(string(r)); ok {
		return presentIn("DaemonSet " + ds.Namespace + "/" + ds.Name)
	}
	return e.absentOrUnread(daemonSets, daemonSets)
}

// daemonSets is the name of all DaemonSets in Evidence.Unread.
const daemonSets = "DaemonSets"

// absentOrUnread returns the finding where a clue was not found in what Unread calls key.
func (e Evidence) absentOrUnread(key, text string) finding {
	if e.Unread[key] {
		return finding{unread, text}
	}
	return finding{}
}

// option: a ConfigMap, or a YAML document in one of its keys, has one of these values at a path.
type option struct {
	configMap string
	document  string // the key with the document; empty: the ConfigMap itself
	path      string // separated by dots in a document
	values    []string
}

func (o option) String() string {
	if slices.Equal(o.values, []string{""}) {
		return fmt.Sprintf("no `%s` in ConfigMap `%s`", o.path, o.configMap)
	}
	return fmt.Sprintf("`%s: %s` in ConfigMap `%s`", o.path, strings.Join(o.values, "` or `"), o.configMap)
}

func (o option) find(e Evidence) finding {
	cm, ok := e.ConfigMaps[o.configMap]
	if !ok {
		return e.absentOrUnread(o.configMap, "ConfigMap "+o.configMap)
	}
	value := cm.Data[o.path]
	if o.document != "" {
		value = o.inDocument(cm.Data[o.document])
	}
	value = strings.TrimSpace(value)
	if !slices.Contains(o.values, value) {
		return finding{}
	}
	if value == "" {
		return presentIn(fmt.Sprintf("no %s in ConfigMap %s/%s", o.path, cm.Namespace, cm.Name))
	}
	return presentIn(fmt.Sprintf("%s: %q in ConfigMap %s/%s", o.path, value, cm.Namespace, cm.Name))
}

func (o option) inDocument(text string) string {
	var document map[string]any
	if yaml.Unmarshal([]byte(text), &document) != nil {
		return ""
	}
	value, ok, err := unstructured.NestedFieldNoCopy(document, strings.Split(o.path, ".")...)
	if err != nil || !ok {
		return ""
	}
	return fmt.Sprint(value)
}

// field: an object that a network plugin is configured with has a value.
type field struct {
	kind, name string
	path       string
	value      any
}

func (f field) String() string {
	return fmt.Sprintf("`%s: %v` in %s `%s`", f.path, f.value, f.kind, f.name)
}

func (f field) find(e Evidence) finding {
	for _, o := range e.Objects[f.kind] {
		value, ok, err := unstructured.NestedFieldNoCopy(o.Object,
			append([]string{"spec"}, strings.Split(f.path, ".")...)...)
		if err == nil && ok && o.GetName() == f.name && value == f.value {
			return presentIn(fmt.Sprintf("%s: %v in %s %s", f.path, f.value, f.kind, f.name))
		}
	}
	return e.absentOrUnread(f.kind, f.kind+" "+f.name)
}

// env: a container of a DaemonSet has an environment variable with this value.
type env struct{ daemonSet, name, value string }

func (v env) String() string {
	return fmt.Sprintf("`%s=%s` in DaemonSet `%s`", v.name, v.value, v.daemonSet)
}

func (v env) find(e Evidence) finding {
	ds, ok := e.daemonSet(v.daemonSet)
	if !ok {
		return e.absentOrUnread(daemonSets, daemonSets)
	}
	for _, c := range ds.Spec.Template.Spec.Containers {
		if slices.Contains(c.Env, corev1.EnvVar{Name: v.name, Value: v.value}) {
			return presentIn(fmt.Sprintf("%s=%s in DaemonSet %s/%s", v.name, v.value, ds.Namespace, ds.Name))
		}
	}
	return finding{}
}

// flag: a DaemonSet has a flag with this value on the command line of a container.
type flag struct{ daemonSet, name, value string }

func (f flag) String() string {
	return fmt.Sprintf("`%s=%s` in DaemonSet `%s`", f.name, f.value, f.daemonSet)
}

func (f flag) find(e Evidence) finding {
	ds, ok := e.daemonSet(f.daemonSet)
	if !ok {
		return e.absentOrUnread(daemonSets, daemonSets)
	}
	if !f.in(ds.Spec.Template.Spec.Containers) {
		return finding{}
	}
	return presentIn(fmt.Sprintf("%s=%s in DaemonSet %s/%s", f.name, f.value, ds.Namespace, ds.Name))
}

func (f flag) in(containers []corev1.Container) bool {
	return slices.ContainsFunc(containers, func(c corev1.Container) bool {
		return strings.EqualFold(flagIn(slices.Concat(c.Command, c.Args), f.name), f.value)
	})
}

// proxyFlag: a pod of kube-proxy that belongs to no DaemonSet, or k3s or RKE2 on a node, has a flag
// with this value.
type proxyFlag struct{ name, value string }

func (f proxyFlag) String() string {
	return fmt.Sprintf("`--%s=%s` of a pod of kube-proxy, or in annotation `k3s.io/node-args` or `rke2.io/node-args` "+
		"of a node", f.name, f.value)
}

func (f proxyFlag) find(e Evidence) finding {
	as := flag{name: "--" + f.name, value: f.value}
	for _, pod := range e.Proxies {
		if as.in(pod.Spec.Containers) {
			return presentIn("pod " + pod.Namespace + "/" + pod.Name)
		}
	}
	nodes := e.nodesWhere(func(n corev1.Node) bool {
		args := n.Annotations["k3s.io/node-args"] + n.Annotations["rke2.io/node-args"]
		return strings.Contains(args, f.name+"="+f.value)
	})
	if nodes != "" {
		return presentIn(nodes)
	}
	return e.absentOrUnread(proxies, proxies)
}

// proxies is the name of the pods of kube-proxy in Evidence.Unread.
const proxies = "pods of kube-proxy"

// nodesWhere names the nodes for which match is true: "node a and 2 others"; empty if there are
// none.
func (e Evidence) nodesWhere(match func(corev1.Node) bool) string {
	var names []string
	for _, n := range e.Nodes {
		if match(n) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	switch len(names) {
	case 0:
		return ""
	case 1:
		return "node " + names[0]
	}
	return fmt.Sprintf("node %s and %d more", names[0], len(names)-1)
}

// label: a node has a label with this value; an empty value stands for any.
type label struct{ name, value string }

func (l label) String() string {
	if l.value == "" {
		return "label `" + l.name + "` of a node"
	}
	return fmt.Sprintf("label `%s=%s` of a node", l.name, l.value)
}

func (l label) find(e Evidence) finding {
	nodes := e.nodesWhere(func(n corev1.Node) bool {
		value, ok := n.Labels[l.name]
		return ok && (l.value == "" || l.value == value)
	})
	if nodes == "" {
		return finding{}
	}
	return presentIn(nodes)
}

// gatewayMode: OVN-Kubernetes has written that nodes are in this gateway mode.
type gatewayMode string

func (m gatewayMode) String() string {
	return "mode `" + string(m) + "` in annotation `k8s.ovn.org/l3-gateway-config` of a node"
}

func (m gatewayMode) find(e Evidence) finding {
	nodes := e.nodesWhere(func(n corev1.Node) bool {
		var config map[string]struct{ Mode string }
		err := json.Unmarshal([]byte(n.Annotations["k8s.ovn.org/l3-gateway-config"]), &config)
		return err == nil && config["default"].Mode == string(m)
	})
	if nodes == "" {
		return finding{}
	}
	return presentIn(nodes)
}

// noPodCIDR: nodes have no network for their pods.
type noPodCIDR struct{}

func (noPodCIDR) String() string { return "nodes without `podCIDR`" }

func (noPodCIDR) find(e Evidence) finding {
	nodes := e.nodesWhere(func(n corev1.Node) bool { return n.Spec.PodCIDR == "" && len(n.Spec.PodCIDRs) == 0 })
	if nodes == "" {
		return finding{}
	}
	return presentIn(nodes)
}

// unencapsulated: Calico has pools for pods, and encapsulates for none of them. It gives nodes an
// address in the pod network for the sake of its tunnels only.
type unencapsulated struct{}

func (unencapsulated) String() string {
	return "IPPools, all with `ipipMode: Never` and `vxlanMode: Never`"
}

func (unencapsulated) find(e Evidence) finding {
	var plain []string
	for _, pool := range e.Objects[ipPool] {
		if !isForPods(pool) {
			continue
		}
		for _, field := range []string{"ipipMode", "vxlanMode"} {
			if mode, _, _ := unstructured.NestedString(pool.Object, "spec", field); mode != "" && mode != "Never" {
				return finding{}
			}
		}
		plain = append(plain, pool.GetName())
	}
	if len(plain) == 0 {
		return e.absentOrUnread(ipPool, "IPPools")
	}
	return presentIn("IPPool " + strings.Join(plain, ", "))
}

// anyOf: at least one of the clues is there.
type anyOf []clue

func (a anyOf) String() string { return joined(a, "; or ") }

func (a anyOf) find(e Evidence) finding {
	out := finding{}
	for _, c := range a {
		if f := c.find(e); f.state > out.state {
			out = f
		}
	}
	return out
}

// not: the clue is not there.
type not struct{ clue }

func (n not) String() string { return "not: " + n.clue.String() }

func (n not) find(e Evidence) finding {
	switch f := n.clue.find(e); f.state {
	case present:
		return finding{}
	case unread:
		return f
	}
	return finding{state: present}
}

func joined(list []clue, by string) string {
	var out []string
	for _, c := range list {
		out = append(out, c.String())
	}
	return strings.Join(out, by)
}
