package join

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/broker"
	"subctl/cluster"
	"subctl/internal/kube"
)

// DryRun lists the objects that a join would write, as it would send them, without secrets.
type DryRun struct {
	// Broker lists the objects to create on the broker, unless they exist.
	Broker []*unstructured.Unstructured `json:"broker"`
	// Cluster lists the objects to apply to the joining cluster. Nodes are patched.
	Cluster []*unstructured.Unstructured `json:"cluster"`
	// DryRun is true: nothing was written.
	DryRun bool `json:"dryRun"`
}

// DryRun returns the objects that Run would write. It writes nothing.
func (j *Operation) DryRun(ctx context.Context) (*DryRun, error) {
	rec := &recorder{Client: j.Broker.Client}
	for _, set := range j.NewSets.Names {
		rec.empty = append(rec.empty, broker.NamespaceIn(j.File.BaseNamespace(), set))
	}
	if _, _, err := j.claim(ctx, rec); err != nil {
		return nil, err
	}
	out := &DryRun{Broker: []*unstructured.Unstructured{}, DryRun: true}
	for _, obj := range append(j.NewSets.Objects, rec.made...) {
		u, err := kube.Unstructured(j.Broker.Scheme(), obj)
		if err != nil {
			return nil, err
		}
		if err := redactToken(u); err != nil {
			return nil, err
		}
		out.Broker = append(out.Broker, u)
	}
	key, err := kube.Optional(ctx, j.Member, &corev1.Secret{},
		client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.ClusterKeySecret})
	if err != nil {
		return nil, err
	}
	public := cluster.Redacted
	if key != nil && !j.Plan.NewKeys {
		public = string(key.Data[cluster.KeyPublic])
	}
	objs, err := j.Plan.Objects(cluster.RedactedSecrets(), public, cluster.Redacted)
	if err != nil {
		return nil, err
	}
	for _, obj := range append(objs, j.Plan.GatewayNodes()...) {
		u, err := kube.Unstructured(j.Member.Scheme(), obj)
		if err != nil {
			return nil, err
		}
		if u.GetKind() == "Node" {
			unstructured.RemoveNestedField(u.Object, "spec")
		}
		out.Cluster = append(out.Cluster, u)
	}
	return out, nil
}

// tokenName is the name of the Secret with a token of a member. It is random.
var tokenName = regexp.MustCompile("-token-[0-9a-f]{32}")

// redactToken removes a token from an object for the broker, and its name, which differs from
// run to run.
func redactToken(u *unstructured.Unstructured) error {
	if u.GetKind() == "Secret" { // the broker fills it
		unstructured.RemoveNestedField(u.Object, "data")
	}
	text, err := u.MarshalJSON()
	if err != nil {
		return fmt.Errorf("encoding %s: %w", u.GetKind(), err)
	}
	return u.UnmarshalJSON(tokenName.ReplaceAll(text, []byte("-token-"+cluster.Redacted)))
}

// recorder is a client that records created objects, and does not send them.
type recorder struct {
	client.Client
	empty []string // namespaces that do not exist yet
	made  []client.Object
}

// Create implements client.Client. Like the API server, it refuses an object that exists. A
// review is no object, but a question.
func (r *recorder) Create(ctx context.Context, obj client.Object, _ ...client.CreateOption) error {
	if review, ok := obj.(*authenticationv1.SelfSubjectReview); ok {
		return r.Client.Create(ctx, review)
	}
	there := obj.DeepCopyObject().(client.Object)
	err := r.Get(ctx, client.ObjectKeyFromObject(obj), there)
	if _, ok := obj.(*corev1.Secret); ok && apierrors.IsForbidden(err) {
		// a new name, which the joiner may read once it is made
		err = apierrors.NewNotFound(schema.GroupResource{}, obj.GetName())
	}
	if err == nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{}, obj.GetName())
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	r.made = append(r.made, obj.DeepCopyObject().(client.Object))
	return nil
}

// Get implements client.Client. It returns a recorded Secret as if the broker's token
// controller had filled it.
func (r *recorder) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if slices.Contains(r.empty, key.Namespace) {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	if s, ok := obj.(*corev1.Secret); ok {
		for _, made := range r.made {
			if m, ok := made.(*corev1.Secret); ok && client.ObjectKeyFromObject(m) == key {
				m.DeepCopyInto(s)
				s.Data = map[string][]byte{
					corev1.ServiceAccountTokenKey: []byte(
						cluster.Redacted),
					corev1.ServiceAccountRootCAKey: []byte(cluster.Redacted),
				}
				return nil
			}
		}
	}
	return r.Client.Get(ctx, key, obj, opts...)
}

// List implements client.Client.
func (r *recorder) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if o := (&client.ListOptions{}).ApplyOptions(opts); slices.Contains(r.empty, o.Namespace) {
		return nil
	}
	return r.Client.List(ctx, list, opts...)
}

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
		out.Fields = differences(live.Object, mergePatch(live.DeepCopy().Object, obj.Object))
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

// mergePatch adds the fields of patch to the object.
func mergePatch(object, patch map[string]any) map[string]any {
	for k, v := range patch {
		below, isMap := v.(map[string]any)
		if was, ok := object[k].(map[string]any); ok && isMap {
			v = mergePatch(was, below)
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
