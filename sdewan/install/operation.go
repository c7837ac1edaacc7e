package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/kube"
	"subctl/internal/progress"
	"subctl/internal/wake"
)

// Operation installs SD-EWAN in a cluster, or brings an installation to another version or image.
type Operation struct {
	Client  client.Client
	Report  *progress.Reporter
	Timeout time.Duration // of Await
}

// poll is the interval at which Operation and Removal look whether what they wait for has happened.
const poll = 500 * time.Millisecond

// CheckRights returns an error that names all rights that the user lacks to apply objects, and to Await their work if wait is true: an
// installation that stops halfway would leave kinds that nothing serves.
func CheckRights(ctx context.Context, c client.Client, where string, objects []client.Object, wait bool) error {
	rights, err := kube.ObjectRights(c.Scheme(), objects, "create", "patch")
	if err != nil {
		return err
	}
	rights = append(rights, kube.NewRight("get", apiextensionsv1.GroupName, "customresourcedefinitions", "")) // see kube.Install
	if wait {
		rights = append(rights, kube.NewRight("get", appsv1.GroupName, "deployments", Namespace), kube.NewRight("get", admissionv1.GroupName, "validatingwebhookconfigurations", ""))
	}
	denied, err := kube.Denied(ctx, c, rights)
	if err != nil {
		return err
	}
	grants, err := kube.DeniedGrants(ctx, c, objects)
	if err != nil {
		return err
	}
	denied = append(denied, grants...)
	return kube.DeniedError(where, denied, "ask an administrator of the cluster, or choose another user or context (docs/permissions.md)")
}

// Apply applies objects, which Render has returned.
func (o *Operation) Apply(ctx context.Context, objects []client.Object) error {
	if err := kube.Install(ctx, o.Client, kube.FieldOwner, objects, nil); err != nil {
		return err
	}
	o.Report.Done("applied %d objects", len(objects))
	return nil
}

// Await waits until what Apply has applied works.
func (o *Operation) Await(ctx context.Context) error {
	o.Report.Step("waiting for the controller")
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("it was not ready within %s", o.Timeout))
	defer cancel()
	for {
		missing, err := notReady(ctx, o.Client)
		if err == nil && missing == nil {
			o.Report.Done("the controller and its webhooks are ready")
			return nil
		}
		if stop := wake.After(ctx, poll); stop != nil {
			return fmt.Errorf("waiting for the controller: %w (%w): look at kubectl -n %s get pods, and install again or with a longer --timeout", stop, errors.Join(missing, err), Namespace)
		}
	}
}

// notReady returns what is missing until rules can be written and are applied, or nil.
func notReady(ctx context.Context, c client.Client) (missing, err error) {
	for _, name := range []string{ControllerName, WebhookName} {
		d := &appsv1.Deployment{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, d); err != nil {
			return nil, fmt.Errorf("reading Deployment %s: %w", name, err)
		}
		want := int32(1)
		if d.Spec.Replicas != nil {
			want = *d.Spec.Replicas
		}
		if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < want || d.Status.AvailableReplicas < want || d.Status.Replicas > want {
			return fmt.Errorf("%d of %d pods of %s are ready%s", d.Status.AvailableReplicas, want, name, trouble(ctx, c, name)), nil
		}
	}
	w := &admissionv1.ValidatingWebhookConfiguration{}
	if err := c.Get(ctx, client.ObjectKey{Name: WebhookName}, w); err != nil {
		return nil, fmt.Errorf("reading the configuration of the webhooks: %w", err)
	}
	for _, hook := range w.Webhooks {
		if len(hook.ClientConfig.CABundle) == 0 {
			return fmt.Errorf("the webhook %s has no certificate yet", hook.Name), nil
		}
	}
	return nil, nil
}

// trouble returns why pods of a component do not start, or "".
func trouble(ctx context.Context, c client.Client, name string) string {
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(Namespace), client.MatchingLabels(app(name))); err != nil {
		return ""
	}
	for _, p := range pods.Items {
		for _, s := range p.Status.ContainerStatuses {
			if w := s.State.Waiting; w != nil && w.Message != "" {
				return fmt.Sprintf(" (%s: %s: %.300s)", p.Name, w.Reason, w.Message)
			}
		}
	}
	return ""
}
