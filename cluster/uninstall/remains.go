package uninstall

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/words"
)

// Remains lists the objects that uninstall finds in a cluster. It contains only objects that
// subctl created.
type Remains struct {
	Submariner *v1alpha1.Submariner // nil if the cluster has not joined
	Namespaced []client.Object      // in cluster.Namespace, in the order of deletion
	// Namespace is the namespace of the agents if subctl created it. OthersIn lists the
	// objects in it that subctl did not create.
	Namespace *corev1.Namespace
	OthersIn  []string
	Global    []client.Object // ClusterRoles and their bindings
	Nodes     []string        // nodes that join labelled as gateways
	Drained   []string        // nodes that subctl gateway drain annotated; weights are the user's
	// Definitions are the CRDs to delete. Kept explains why no CRDs are deleted.
	Definitions []*apiextensionsv1.CustomResourceDefinition
	Kept        string
	// Exports names the CRDs of the Multi-Cluster Services API that uninstall does not delete, and
	// explains why. It is empty if it deletes all of ours.
	Exports string
	// Addresses is the number of objects for global addresses that the globalnet agent has made, if
	// the CRDs are kept.
	Addresses int
	// Imports is the number of objects that stand for imported Services.
	Imports int
}

// Empty reports whether there is nothing to uninstall.
func (r *Remains) Empty() bool {
	return r.Submariner == nil && len(r.Namespaced) == 0 && r.Namespace == nil && len(r.Global) == 0 &&
		len(r.Nodes) == 0 &&
		len(r.Drained) == 0 && len(r.Definitions) == 0 &&
		r.Addresses == 0 &&
		r.Imports == 0
}

// ReadRemains finds the objects that join created in a cluster.
func ReadRemains(ctx context.Context, c client.Client) (*Remains, error) {
	r := &Remains{}
	var err error
	if r.Submariner, err = kube.Optional(ctx, c, &v1alpha1.Submariner{}, client.ObjectKey{
		Namespace: cluster.Namespace,
		Name:      v1alpha1.SubmarinerName,
	}); err != nil {
		return nil, err
	}
	if r.Submariner != nil && !cluster.IsOurs(r.Submariner.Labels) {
		return nil, fmt.Errorf(
			"this cluster was not joined by subctl (Submariner %s/%s has no label %s=%s): uninstall it with the tool that joined it",
			cluster.Namespace, r.Submariner.Name, cluster.ManagedByLabel, cluster.ManagedBy)
	}
	if err := r.readObjects(ctx, c); err != nil {
		return nil, err
	}
	if r.Namespace != nil {
		if r.OthersIn, err = othersIn(ctx, c); err != nil {
			return nil, err
		}
	}
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	for _, n := range nodes.Items {
		if n.Annotations[cluster.LabelledByAnnotation] == cluster.ManagedBy {
			r.Nodes = append(r.Nodes, n.Name)
		}
		if _, drained := n.Annotations[submarinerv1.DrainAnnotation]; drained {
			r.Drained = append(r.Drained, n.Name)
		}
	}
	if err := r.readImports(ctx, c); err != nil {
		return nil, err
	}
	return r, r.readDefinitions(ctx, c)
}

// readObjects reads all objects that Render and Secrets return and that subctl created.
func (r *Remains) readObjects(ctx context.Context, c client.Client) error {
	objs, err := cluster.Everything()
	if err != nil {
		return err
	}
	objs = append(cluster.RedactedSecrets(), objs...)
	for i := len(objs) - 1; i >= 0; i-- { // agents are deleted before the objects that they need
		switch objs[i].(type) {
		case *apiextensionsv1.CustomResourceDefinition, *v1alpha1.Submariner:
			continue
		}
		found, err := kube.Optional(ctx, c, objs[i].DeepCopyObject().(client.Object),
			client.ObjectKeyFromObject(objs[i]))
		if err != nil {
			return err
		}
		if found == nil || !cluster.IsOurs(found.GetLabels()) {
			continue
		}
		if ns, ok := found.(*corev1.Namespace); ok {
			r.Namespace = ns
		} else if found.GetNamespace() == "" {
			r.Global = append(r.Global, found)
		} else {
			r.Namespaced = append(r.Namespaced, found)
		}
	}
	return nil
}

// othersKinds are the kinds of objects of others that keep the namespace of the agents.
func othersKinds() []schema.GroupVersionKind {
	return append(kube.PeoplesKinds(), v1alpha1.GroupVersion.WithKind("Broker"))
}

// othersIn returns the objects in the namespace of the agents that neither subctl nor
// Kubernetes created.
func othersIn(ctx context.Context, c client.Client) ([]string, error) {
	return kube.OthersIn(ctx, c, cluster.Namespace, othersKinds(),
		func(_ string, o metav1.PartialObjectMetadata) bool { return cluster.IsOurs(o.Labels) })
}

// globalnet reports whether there is anything of the globalnet agent.
func (r *Remains) globalnet() bool {
	return slices.ContainsFunc(slices.Concat(r.Namespaced, r.Global),
		func(o client.Object) bool { return o.GetName() == cluster.GlobalnetName })
}

// Lines returns the actions of uninstall, one per line.
func (r *Remains) Lines(c client.Client) []string {
	var out []string
	remove := func(obj client.Object) { out = append(out, deletion(c, obj)) }
	if r.hasDNS() {
		out = append(out, "remove from the cluster's DNS what subctl has added")
	}
	if r.Submariner != nil {
		remove(r.Submariner)
		out = append(
			out,
			"wait until every node is clean",
			fmt.Sprintf("revoke the grant of cluster %q, and remove the cluster from the broker at %s",
				r.Submariner.Spec.ClusterID, r.Submariner.Spec.BrokerK8sApiServer),
		)
	}
	for _, obj := range r.Namespaced {
		remove(obj)
	}
	if r.Namespace != nil && len(r.OthersIn) == 0 {
		remove(r.Namespace)
	} else if r.Namespace != nil {
		out = append(out,
			fmt.Sprintf("keep Namespace %s, which contains %s", cluster.Namespace, words.List(r.OthersIn)))
	}
	for _, obj := range r.Global {
		remove(obj)
	}
	for _, n := range r.Nodes {
		out = append(out, "unlabel Node "+n)
	}
	for _, n := range r.Drained {
		out = append(out, fmt.Sprintf("remove annotation %s of Node %s", submarinerv1.DrainAnnotation, n))
	}
	if r.Addresses > 0 {
		out = append(out, "delete "+words.Count(r.Addresses, "object")+" that the globalnet agent has made")
	}
	if r.Imports > 0 {
		out = append(out, "delete "+words.Count(r.Imports, "object")+" that stand for imported Services")
	}
	if r.globalnet() {
		out = append(out, "remove annotation "+submarinerv1.GlobalIPAnnotation+" of pods and Services")
	}
	for _, d := range r.Definitions {
		remove(d)
	}
	if r.Kept != "" {
		out = append(out, "keep the CustomResourceDefinitions: "+r.Kept)
	}
	if r.Exports != "" {
		out = append(out, "keep "+r.Exports)
	}
	return out
}

// deletion is the action that deletes an object, for people.
func deletion(c client.Client, obj client.Object) string {
	kind := "object"
	if gvk, err := apiutil.GVKForObject(obj, c.Scheme()); err == nil {
		kind = gvk.Kind
	}
	name := obj.GetName()
	if obj.GetNamespace() != "" {
		name = obj.GetNamespace() + "/" + name
	}
	return "delete " + kind + " " + name
}

// outcome describes what is left of subctl in the cluster after r is removed, and on its nodes that
// are dirty.
func (r *Remains) outcome(dirty []string) string {
	var stays []string
	if r.Namespace != nil && len(r.OthersIn) > 0 {
		stays = append(stays, "namespace "+cluster.Namespace)
	}
	if r.Kept != "" {
		stays = append(stays, "the CustomResourceDefinitions with the ClusterRoles of their users")
	}
	if r.Exports != "" {
		stays = append(stays, r.Exports)
	}
	if len(dirty) > 0 {
		stays = append(stays, "devices, routes and rules on "+words.List(dirty)+" until a restart")
	}
	if len(stays) == 0 {
		return "nothing of subctl is left in this cluster"
	}
	return "nothing of subctl is left in this cluster except " + strings.Join(stays, " and ")
}

// unlabelGateway removes the gateway label and the annotation that join added to a node.
func unlabelGateway(ctx context.Context, c client.Client, name string) error {
	if err := clearNode(ctx, c, name, cluster.GatewayNode(name)); err != nil {
		return fmt.Errorf("removing the gateway label of node %s: %w", name, err)
	}
	return nil
}

// undrain removes the annotation that subctl gateway drain added to a node.
func undrain(ctx context.Context, c client.Client, name string) error {
	drained := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{submarinerv1.DrainAnnotation: ""}},
	}
	if err := clearNode(ctx, c, name, drained); err != nil {
		return fmt.Errorf("removing annotation %s of node %s: %w", submarinerv1.DrainAnnotation, name, err)
	}
	return nil
}

// clearNode removes the labels and the annotations of ours from a node. The patch names each: the
// difference between ours and a node without any, as client.MergeFrom makes it, would remove those
// of everybody.
func clearNode(ctx context.Context, c client.Client, name string, ours *corev1.Node) error {
	none := func(of map[string]string) map[string]any {
		out := map[string]any{}
		for k := range of {
			out[k] = nil
		}
		return out
	}
	patch, err := json.Marshal(
		map[string]any{"metadata": map[string]any{"labels": none(ours.Labels), "annotations": none(ours.Annotations)}})
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return client.IgnoreNotFound(
		c.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(kube.FieldOwner)))
}
