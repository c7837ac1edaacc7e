package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/api/crds"
	"subctl/cluster"
	"subctl/internal/kube"
)

// readDefinitions finds the CRDs to delete. On a broker, or if there are objects outside the
// namespace of the agents, all CRDs are kept, and the ClusterRoles of their users.
func (r *Remains) readDefinitions(ctx context.Context, c client.Client) error {
	var err error
	r.Definitions, r.Kept, err = definitions(ctx, c,
		func(kind schema.GroupVersionKind, o metav1.PartialObjectMetadata) bool {
			if cluster.IsOurs(o.Labels) && slices.Contains(addressKinds(), kind) {
				r.Addresses++
			}
			return kind.Kind != "Broker" && (o.Namespace == cluster.Namespace || cluster.IsOurs(o.Labels))
		})
	if err != nil {
		return err
	}
	ours, kept, err := servicesDefinitions(ctx, c)
	if err != nil {
		return err
	}
	if r.Kept != "" { // these definitions are among them
		r.Definitions = nil
		r.Global = slices.DeleteFunc(r.Global, func(o client.Object) bool { return crds.IsUserRole(o.GetName()) })
		return nil
	}
	r.Addresses = 0 // they go with their definitions
	r.Definitions = append(r.Definitions, ours...)
	r.Exports = kept
	return r.readUserRoles(ctx, c)
}

// readUserRoles adds the ClusterRoles of users that only deploy-broker has applied: their labels do
// not tell that they are ours.
func (r *Remains) readUserRoles(ctx context.Context, c client.Client) error {
	roles, err := userRoles(ctx, c)
	for _, role := range roles {
		if !slices.ContainsFunc(r.Global, func(o client.Object) bool { return o.GetName() == role.GetName() }) {
			r.Global = append(r.Global, role)
		}
	}
	return err
}

// userRoles returns the ClusterRoles of the users of our kinds that subctl has applied.
func userRoles(ctx context.Context, c client.Client) ([]client.Object, error) {
	var out []client.Object
	for _, role := range crds.UserRoles() {
		found, err := kube.Optional(ctx, c, role, client.ObjectKeyFromObject(role))
		if err != nil {
			return nil, err
		}
		if found != nil && isApplied(found) {
			out = append(out, found)
		}
	}
	return out, nil
}

// isApplied reports whether subctl has applied an object: join labels what it applies,
// deploy-broker does not. Submariner's subctl has the same name as a field manager, but does not
// apply.
func isApplied(o client.Object) bool {
	return cluster.IsOurs(o.GetLabels()) || slices.ContainsFunc(o.GetManagedFields(),
		func(f metav1.ManagedFieldsEntry) bool {
			return f.Manager == kube.FieldOwner && f.Operation == metav1.ManagedFieldsOperationApply
		})
}

// definitions returns the CRDs that subctl has applied, and why they must be kept: an object of one
// of their kinds stays, because goes does not report that it is deleted, too. kept is empty if
// there is none.
func definitions(
	ctx context.Context, c client.Client, goes func(schema.GroupVersionKind, metav1.PartialObjectMetadata) bool,
) (found []*apiextensionsv1.CustomResourceDefinition, kept string, err error) {
	all, err := crds.All()
	if err != nil {
		return nil, "", err
	}
	known := false // why they are kept is known, and no better reason follows
	for _, def := range all {
		there, err := kube.Optional(ctx, c, &apiextensionsv1.CustomResourceDefinition{},
			client.ObjectKeyFromObject(def))
		if err != nil {
			return nil, "", err
		}
		if there == nil || !isApplied(there) {
			continue
		}
		found = append(found, there)
		kind := kindOf(def)
		objects, err := kube.ListMetadata(ctx, c, kind, "")
		if err != nil {
			return nil, "", err
		}
		for _, o := range objects {
			switch {
			case goes(kind, o), known:
			case kind.Kind == "Broker":
				kept = fmt.Sprintf("this cluster hosts a broker (Broker %s/%s)", o.Namespace, o.Name)
				known = true
			case kind.Kind == "Submariner":
				kept = fmt.Sprintf("this cluster has joined (Submariner %s/%s)", o.Namespace, o.Name)
				known = true
			default:
				kept = fmt.Sprintf("%s %s/%s exists", kind.Kind, o.Namespace, o.Name)
			}
		}
	}
	return found, kept, nil
}

func kindOf(def *apiextensionsv1.CustomResourceDefinition) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: def.Spec.Group, Version: def.Spec.Versions[0].Name, Kind: def.Spec.Names.Kind}
}

// servicesDefinitions returns the definitions of the Multi-Cluster Services API that join has made,
// and why others of them are kept: somebody exports a Service, or another program imports some.
func servicesDefinitions(
	ctx context.Context, c client.Client,
) (ours []*apiextensionsv1.CustomResourceDefinition, kept string, err error) {
	all, err := ownServicesDefinitions()
	if err != nil {
		return nil, "", err
	}
	var reasons []string
	for _, def := range all {
		found, err := kube.Optional(ctx, c, &apiextensionsv1.CustomResourceDefinition{},
			client.ObjectKeyFromObject(def))
		if err != nil {
			return nil, "", err
		}
		if found == nil || !cluster.IsOurs(found.Labels) {
			continue
		}
		objects, err := kube.ListMetadata(ctx, c, kindOf(def), "")
		if err != nil {
			return nil, "", err
		}
		objects = slices.DeleteFunc(objects, func(o metav1.PartialObjectMetadata) bool {
			return def.Spec.Names.Kind == mcsv1alpha1.ServiceImportKindName && cluster.IsOurs(o.Labels)
		})
		if len(objects) == 0 {
			ours = append(ours, found)
			continue
		}
		reasons = append(reasons, fmt.Sprintf("CustomResourceDefinition %s, as %s %s/%s exists", found.Name,
			def.Spec.Names.Kind, objects[0].Namespace, objects[0].Name))
	}
	return ours, strings.Join(reasons, " and "), nil
}

// ownServicesDefinitions returns the definitions of the Multi-Cluster Services API as join makes
// them.
func ownServicesDefinitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	exports, err := cluster.ServiceExports()
	if err != nil {
		return nil, err
	}
	imports, err := cluster.ServiceImports()
	return []*apiextensionsv1.CustomResourceDefinition{exports, imports}, err
}
