package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/crds"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/progress"
)

// The obstacles to removing a broker, as the flag --force names them.
const (
	Members Obstacle = "members" // clusters are joined to it
	Objects Obstacle = "objects" // its namespaces contain objects of others
)

// BrokerObstacles returns the obstacles to removing a broker.
func BrokerObstacles() []Obstacle { return []Obstacle{Members, Objects} }

// BrokerRemains lists the objects of a broker on a cluster. It contains only objects that subctl
// created.
type BrokerRemains struct {
	// Namespaces are the namespaces of the clustersets; that of the broker itself is the last.
	Namespaces []*corev1.Namespace
	// Members and Invited are the IDs of clusters, sorted. They are empty if the broker is being
	// deleted.
	Members, Invited []string
	// OthersIn are the objects in the namespaces that subctl did not create.
	OthersIn []string
	// Global are admission policies and their bindings; and ClusterRoles, unless Kept.
	Global []client.Object
	// Definitions are the CRDs to delete. Kept explains why no CRDs are deleted, Exports why the
	// CRDs of the Multi-Cluster Services API are not.
	Definitions   []*apiextensionsv1.CustomResourceDefinition
	Kept, Exports string
}

// Empty reports whether there is no broker, and nothing of an earlier one.
func (r *BrokerRemains) Empty() bool {
	return len(r.Namespaces) == 0 && len(r.Global) == 0 && len(r.Definitions) == 0
}

// ReadBroker finds the objects of the broker whose base namespace is base.
func ReadBroker(ctx context.Context, c client.Client, base string) (*BrokerRemains, error) {
	r := &BrokerRemains{}
	if err := r.readNamespaces(ctx, c, base); err != nil {
		return nil, err
	}
	rendered, err := broker.Render(broker.Options{Namespace: base})
	if err != nil {
		return nil, err
	}
	for _, obj := range rendered {
		switch obj.(type) {
		case *admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding:
		default:
			continue
		}
		found, err := kube.Optional(ctx, c, obj, client.ObjectKeyFromObject(obj))
		if err != nil {
			return nil, err
		}
		if found != nil {
			r.Global = append(r.Global, found)
		}
	}
	slices.Reverse(r.Global) // bindings before policies
	return r, r.readDefinitions(ctx, c)
}

// readNamespaces finds the namespaces of the clustersets, the members, and objects of others.
func (r *BrokerRemains) readNamespaces(ctx context.Context, c client.Client, base string) error {
	found := &corev1.NamespaceList{}
	if err := c.List(ctx, found, client.HasLabels{submarinerv1.ClusterSetLabel}); err != nil {
		return fmt.Errorf("reading the clustersets of the broker: %w", err)
	}
	var own *corev1.Namespace
	for i := range found.Items {
		switch ns := &found.Items[i]; ns.Name {
		case base:
			own = ns
		case broker.NamespaceIn(base, ns.Labels[submarinerv1.ClusterSetLabel]):
			r.Namespaces = append(r.Namespaces, ns)
		}
	}
	if own == nil {
		key := client.ObjectKey{Namespace: base, Name: v1alpha1.BrokerName}
		foreign, err := kube.Optional(ctx, c, &v1alpha1.Broker{}, key)
		if err != nil {
			return err
		}
		if foreign != nil {
			return fmt.Errorf("the broker in namespace %s was not deployed by subctl (the namespace has no label %s): "+
				"remove it with the tool that deployed it", base, submarinerv1.ClusterSetLabel)
		}
	} else {
		r.Namespaces = append(r.Namespaces, own)
	}
	if own != nil && own.DeletionTimestamp == nil { // nothing is left to refuse of a broker that is being deleted
		state, err := broker.Look(ctx, c, base)
		if err != nil {
			return err
		}
		r.Members = state.Members
		r.Invited = state.Invited
	}
	for _, ns := range r.Namespaces {
		if ns.DeletionTimestamp != nil {
			continue
		}
		others, err := broker.OthersIn(ctx, c, ns.Name)
		if err != nil {
			return err
		}
		for _, o := range others {
			r.OthersIn = append(r.OthersIn, o+" in namespace "+ns.Name)
		}
	}
	return nil
}

// readDefinitions finds the CRDs and the ClusterRoles of their users, which are kept if the cluster
// has joined, or hosts another broker.
func (r *BrokerRemains) readDefinitions(ctx context.Context, c client.Client) error {
	var err error
	r.Definitions, r.Kept, err = definitions(ctx, c,
		func(_ schema.GroupVersionKind, o metav1.PartialObjectMetadata) bool {
			return slices.ContainsFunc(r.Namespaces, func(ns *corev1.Namespace) bool { return ns.Name == o.Namespace })
		})
	if err != nil || r.Kept != "" {
		r.Definitions = nil
		return err
	}
	ours, kept, err := servicesDefinitions(ctx, c)
	if err != nil {
		return err
	}
	r.Definitions = append(r.Definitions, ours...)
	r.Exports = kept
	roles, err := userRoles(ctx, c)
	r.Global = append(r.Global, roles...)
	return err
}

// Lines returns the actions of Remove, one per line.
func (r *BrokerRemains) Lines(c client.Client) []string {
	var out []string
	for _, ns := range r.Namespaces {
		out = append(out, deletion(c, ns))
	}
	for _, obj := range r.Global {
		out = append(out, deletion(c, obj))
	}
	for _, def := range r.Definitions {
		out = append(out, deletion(c, def))
	}
	if r.Kept != "" {
		out = append(out, "keep the CustomResourceDefinitions: "+r.Kept)
	}
	if r.Exports != "" {
		out = append(out, "keep "+r.Exports)
	}
	return out
}

// Remove deletes r, and waits for at most limit for each object until it is gone. It may be
// repeated.
func (r *BrokerRemains) Remove(
	ctx context.Context, c client.Client, report *progress.Reporter, limit time.Duration,
) error {
	err := r.remove(ctx, c, report, limit)
	if err != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: run the same command again to finish", cluster.Interrupted(ctx))
	}
	return err
}

func (r *BrokerRemains) remove(
	ctx context.Context, c client.Client, report *progress.Reporter, limit time.Duration,
) error {
	for _, ns := range r.Namespaces {
		if err := remove(ctx, c, ns); err != nil {
			return err
		}
	}
	for _, ns := range r.Namespaces {
		report.Step("waiting until namespace %s is deleted", ns.Name)
		if err := gone(ctx, c, ns, limit); err != nil {
			return err
		}
	}
	for _, obj := range r.Global { // after the rights that the policies bound
		if err := remove(ctx, c, obj); err != nil {
			return err
		}
	}
	for _, def := range r.Definitions {
		if err := remove(ctx, c, def); err != nil {
			return err
		}
	}
	for _, def := range r.Definitions {
		if err := gone(ctx, c, def, limit); err != nil {
			return err
		}
	}
	return nil
}

// CheckBrokerRights returns an error that names the rights that removing a broker needs and the
// user lacks.
func CheckBrokerRights(ctx context.Context, s cluster.Side, base string) error {
	objs, err := broker.Render(broker.Options{Namespace: base})
	if err != nil {
		return err
	}
	objs = slices.DeleteFunc(objs, func(o client.Object) bool {
		_, ns := o.(*corev1.Namespace)
		// Which are deleted with their namespace; of others, only the names are known later.
		return o.GetNamespace() != "" || ns
	})
	services, err := ownServicesDefinitions()
	if err != nil {
		return err
	}
	for _, def := range services {
		objs = append(objs, def)
	}
	needed, err := kube.ObjectRights(s.Scheme(), objs, "get", "delete")
	if err != nil {
		return err
	}
	all, err := crds.All()
	if err != nil {
		return err
	}
	for _, def := range append(all, services...) {
		needed = append(needed, kube.NewRight("list", def.Spec.Group, def.Spec.Names.Plural, ""))
	}
	for _, verb := range []string{"list", "get", "delete"} {
		needed = append(needed, kube.NewRight(verb, "", "namespaces", ""))
	}
	needed = append(needed, kube.NewRight("list", "", "serviceaccounts", base),
		kube.NewRight("get", v1alpha1.GroupVersion.Group, "brokers", base))
	missing, err := kube.Denied(ctx, s, needed)
	if err != nil {
		return err
	}
	return kube.DeniedError("the cluster at "+s.URL, missing, "use a context with an administrator's rights")
}
