package uninstall

import (
	"context"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/crds"
	"subctl/cluster"
	"subctl/internal/kube"
)

// readDefinitions finds the CRDs to delete. On a broker, or if there are objects outside the
// namespace of the agents, all CRDs are kept, and the ClusterRoles of their users.
func (r *Remains) readDefinitions(ctx context.Context, c client.Client) error {
	all, err := crds.All()
	if err != nil {
		return err
	}
	hosts := ""
	for _, def := range all {
		found, err := kube.Optional(ctx, c, &apiextensionsv1.CustomResourceDefinition{}, client.ObjectKeyFromObject(def))
		if err != nil {
			return err
		}
		if found == nil || !cluster.IsOurs(found.Labels) {
			continue
		}
		kind := schema.GroupVersionKind{Group: def.Spec.Group, Version: def.Spec.Versions[0].Name, Kind: def.Spec.Names.Kind}
		names, err := kube.ListMetadata(ctx, c, kind, "")
		if err != nil {
			return err
		}
		for _, o := range names {
			if kind.Kind == "Broker" {
				hosts = o.Namespace + "/" + o.Name
			}
			if kind.Kind == "Broker" || o.Namespace != cluster.Namespace && !cluster.IsOurs(o.Labels) {
				r.Kept = fmt.Sprintf("%s %s/%s exists", kind.Kind, o.Namespace, o.Name)
			}
			if cluster.IsOurs(o.Labels) && slices.Contains(addressKinds(), kind) {
				r.Addresses++
			}
		}
		r.Definitions = append(r.Definitions, found)
	}
	if err := r.readExports(ctx, c); err != nil {
		return err
	}
	if hosts != "" {
		r.Kept = fmt.Sprintf("this cluster hosts a broker (Broker %s)", hosts)
	}
	if r.Kept != "" {
		r.Exports = "" // it is one of them
	}
	if r.Kept == "" {
		r.Addresses = 0 // they go with their definitions
	} else {
		r.Definitions = nil
		r.Global = slices.DeleteFunc(r.Global, func(o client.Object) bool { return crds.IsUserRole(o.GetName()) })
	}
	return nil
}

// readExports finds the definition of ServiceExports. It is kept if somebody exports a Service: others may use it, too.
func (r *Remains) readExports(ctx context.Context, c client.Client) error {
	def, err := cluster.ServiceExports()
	if err != nil {
		return err
	}
	found, err := kube.Optional(ctx, c, &apiextensionsv1.CustomResourceDefinition{}, client.ObjectKeyFromObject(def))
	if err != nil || found == nil || !cluster.IsOurs(found.Labels) {
		return err
	}
	exports, err := kube.ListMetadata(ctx, c, schema.GroupVersionKind{Group: def.Spec.Group, Version: def.Spec.Versions[0].Name, Kind: def.Spec.Names.Kind}, "")
	if err != nil {
		return err
	}
	if len(exports) == 0 {
		r.Definitions = append(r.Definitions, found)
		return nil
	}
	r.Exports = fmt.Sprintf("CustomResourceDefinition %s, as ServiceExport %s/%s exists", found.Name, exports[0].Namespace, exports[0].Name)
	return nil
}
