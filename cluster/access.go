package cluster

import (
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"subctl/internal/kube"
)

// right is a right to all objects of a resource in a namespace.
func right(verb, group, resource, namespace string) kube.Right {
	return kube.Right{Verb: verb, Group: group, Resource: resource, Namespace: namespace}
}

// rights returns what it takes to apply objs. To make or bind a Role, a user must also
// hold what is in it: see grants.
func rights(c client.Client, objs []client.Object) ([]kube.Right, error) {
	var out []kube.Right
	for _, obj := range objs {
		gvk, err := apiutil.GVKForObject(obj, c.Scheme())
		if err != nil {
			return nil, err
		}
		for _, verb := range []string{"create", "patch"} {
			out = append(out, right(verb, gvk.Group, kube.Resource(gvk), obj.GetNamespace()))
		}
	}
	return out, nil
}

// deniedError names missing rights on the API server at server.
func deniedError(where string, missing []kube.Right, remedy string) error {
	if len(missing) == 0 {
		return nil
	}
	var names []string
	for _, r := range missing {
		names = append(names, r.String())
	}
	const most = 6
	if n := len(names) - most; n > 0 {
		names = append(names[:most], fmt.Sprintf("and %d more", n))
	}
	return fmt.Errorf("%s does not allow this user to %s: %s", where, strings.Join(names, ", "), remedy)
}
