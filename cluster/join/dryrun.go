package join

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
