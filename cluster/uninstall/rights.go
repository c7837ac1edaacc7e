package uninstall

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/crds"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/exchange"
	"subctl/cluster"
	"subctl/internal/kube"
)

// CheckRights returns an error that names the rights that uninstall needs and the user lacks. An
// uninstall that stops halfway would leave agents without what they need.
func CheckRights(ctx context.Context, s cluster.Side) error {
	needed, err := rights(s.Scheme())
	if err != nil {
		return err
	}
	missing, err := kube.Denied(ctx, s, needed)
	if err != nil {
		return err
	}
	return kube.DeniedError("the cluster at "+s.URL, missing, "use a context with an administrator's rights")
}

// rights returns the rights to read and to delete everything that join creates, and to read what
// forbids that: objects of others in the namespace, and users of the CRDs.
func rights(scheme *runtime.Scheme) ([]kube.Right, error) {
	objs, err := cluster.Everything()
	if err != nil {
		return nil, err
	}
	out, err := kube.ObjectRights(scheme, append(objs, cluster.RedactedSecrets()...), "get", "delete")
	if err != nil {
		return nil, err
	}
	deleted, err := kube.ObjectRights(scheme, writtenKinds(), "deletecollection")
	if err != nil {
		return nil, err
	}
	out = append(out, deleted...)
	for _, kind := range addressKinds() {
		out = append(out, kube.NewRight("deletecollection", kind.Group, kube.Resource(kind), ""))
	}
	for _, kind := range othersKinds() {
		out = append(out, kube.NewRight("list", kind.Group, kube.Resource(kind), cluster.Namespace))
	}
	definitions, err := crds.All()
	if err != nil {
		return nil, err
	}
	for _, def := range definitions {
		out = append(out, kube.NewRight("list", def.Spec.Group, def.Spec.Names.Plural, ""))
	}
	services, err := ownServicesDefinitions()
	if err != nil {
		return nil, err
	}
	for _, def := range services {
		out = append(out, kube.NewRight("list", def.Spec.Group, def.Spec.Names.Plural, ""))
	}
	for _, k := range importedKinds() {
		for _, verb := range []string{"list", "deletecollection"} {
			out = append(out, kube.NewRight(verb, k.kind.Group, kube.Resource(k.kind), ""))
		}
	}
	return append(out, kube.NewRight("list", coordinationv1.GroupName, "leases", cluster.Namespace),
		kube.NewRight("delete", coordinationv1.GroupName, "leases", cluster.Namespace),
		kube.NewRight("patch", v1alpha1.GroupVersion.Group, "submariners", cluster.Namespace),
		kube.NewRight("patch", "", "namespaces", ""), kube.NewRight("list", "", "nodes", ""),
		kube.NewRight("patch", "", "nodes", "")), nil
}

// writtenKinds are the kinds of the objects that agents and users write in the namespace of the
// agents.
func writtenKinds() []client.Object {
	out := []client.Object{&submarinerv1.Gateway{}, &submarinerv1.RouteAgent{}}
	for _, k := range exchange.Kinds() {
		out = append(out, k.New())
	}
	for _, o := range out {
		o.SetNamespace(cluster.Namespace)
	}
	return out
}

// addressKinds are the kinds of the objects that the globalnet agent makes, in all namespaces.
func addressKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		submarinerv1.GroupVersion.WithKind("GlobalIngressIP"),
		submarinerv1.GroupVersion.WithKind("ClusterGlobalEgressIP"),
	}
}
