package join

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/cluster"
	"subctl/internal/kube"
)

// ObjectChange is an object that a join would create or change.
type ObjectChange struct {
	Object string // kind, namespace and name
	// New reports whether the object does not exist yet.
	New bool
	// Fields are the fields that change, sorted.
	Fields []Change
}

// Difference holds the changes of the broker and of the cluster by a join.
type Difference struct {
	Broker, Cluster []ObjectChange
	// Same is the number of objects that stay as they are.
	Same int
}

// Compare returns how the objects of a dry run differ from the objects that exist. It asks
// the API server what applying an object would result in, so that defaults are no differences.
// It writes nothing.
func (j *Operation) Compare(ctx context.Context, d *DryRun) (*Difference, error) {
	out := &Difference{}
	for _, obj := range d.Broker { // only objects that do not exist
		out.Broker = append(out.Broker, ObjectChange{Object: title(obj), New: true})
	}
	for _, obj := range d.Cluster {
		c, err := j.compare(ctx, obj)
		switch {
		case err != nil:
			return nil, fmt.Errorf("comparing %s: %w", title(obj), err)
		case c.New || len(c.Fields) > 0:
			out.Cluster = append(out.Cluster, c)
		default:
			out.Same++
		}
	}
	return out, nil
}

// compare returns how applying obj would change the cluster.
func (j *Operation) compare(ctx context.Context, obj *unstructured.Unstructured) (ObjectChange, error) {
	out := ObjectChange{Object: title(obj)}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(obj.GroupVersionKind())
	err := j.Member.Get(ctx, client.ObjectKeyFromObject(obj), live)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		out.New = true
		return out, nil
	}
	if err != nil {
		return out, err
	}
	switch obj.GetKind() {
	case "Submariner": // the CRD of an earlier version may lack fields
		out.Fields = prefixed("spec.", j.Plan.Changes)
	case "Secret": // values are not shown; join keeps keys
		if obj.GetName() == cluster.TrustSecret {
			out.Fields = prefixed("grant.", j.Plan.Granted)
		}
	case "Node":
		out.Fields = differences(live.Object, merge(live.DeepCopy().Object, obj.Object))
	default:
		then := obj.DeepCopy()
		owner := client.FieldOwner(kube.FieldOwner)
		if err := j.Member.Apply(ctx, client.ApplyConfigurationFromUnstructured(then), owner, client.ForceOwnership,
			client.DryRunAll); err != nil {
			return out, err
		}
		out.Fields = slices.DeleteFunc(differences(live.Object, then.Object), isMark)
	}
	return out, nil
}

// isMark reports whether a change is of the mark that a broker leaves in definitions to end
// watches. It has no meaning for anything else.
func isMark(c Change) bool { return strings.HasSuffix(c.Field, "openAPIV3Schema.title") }

func title(obj *unstructured.Unstructured) string {
	name := obj.GetName()
	if ns := obj.GetNamespace(); ns != "" {
		name = ns + "/" + name
	}
	return obj.GetKind() + " " + name
}

func prefixed(prefix string, list []Change) []Change {
	out := slices.Clone(list)
	for i := range out {
		out[i].Field = prefix + out[i].Field
	}
	return out
}

// merge adds the fields of patch to the object.
func merge(object, patch map[string]any) map[string]any {
	for k, v := range patch {
		below, isMap := v.(map[string]any)
		if was, ok := object[k].(map[string]any); ok && isMap {
			v = merge(was, below)
		}
		object[k] = v
	}
	return object
}

// differences returns the fields of an object that differ, except those that the API server
// or a controller sets.
func differences(was, will map[string]any) []Change {
	before := map[string]string{}
	after := map[string]string{}
	flatten(before, "", written(was))
	flatten(after, "", written(will))
	return diff(before, after)
}

// written returns an object without what the API server and controllers write.
func written(object map[string]any) map[string]any {
	out := (&unstructured.Unstructured{Object: object}).DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid"} {
		unstructured.RemoveNestedField(out.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(out.Object, "status")
	unstructured.RemoveNestedField(out.Object, "metadata", "annotations", appsv1.DeprecatedTemplateGeneration)
	unstructured.RemoveNestedField(out.Object, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
	return out.Object
}
