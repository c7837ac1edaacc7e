package install

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/cluster/workload"
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

// CheckRights returns an error that names all rights that the user lacks to apply objects, and to
// Await their work if wait is true: an installation that stops halfway would leave kinds that
// nothing serves.
func CheckRights(ctx context.Context, c client.Client, where string, objects []client.Object, wait bool) error {
	rights, err := kube.ObjectRights(c.Scheme(), objects, "create", "patch")
	if err != nil {
		return err
	}
	// see kube.Install
	rights = append(rights, kube.NewRight("get", apiextensionsv1.GroupName, "customresourcedefinitions", ""))
	if wait {
		rights = append(rights, kube.NewRight("get", appsv1.GroupName, "deployments", Namespace),
			kube.NewRight("get", admissionv1.GroupName, "validatingwebhookconfigurations", ""))
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
	return kube.DeniedError(where, denied,
		"ask an administrator of the cluster, or choose another user or context (docs/permissions.md)")
}

// Apply applies objects, which Render has returned.
func (o *Operation) Apply(ctx context.Context, objects []client.Object) error {
	if err := kube.Install(ctx, o.Client, kube.FieldOwner, objects, nil); err != nil {
		return err
	}
	o.Report.Done("applied %d objects", len(objects))
	return nil
}

// Await waits until what Apply has applied works. What keeps pods from running is printed as soon
// as it is seen twice; Await returns early if it does not pass by itself.
func (o *Operation) Await(ctx context.Context) error {
	o.Report.Step("waiting for the controller")
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("it was not ready within %s", o.Timeout))
	defer cancel()
	var pods workload.Follower
	for {
		faults, missing, err := notReady(ctx, o.Client)
		if err == nil && missing == nil {
			o.Report.Done("the controller and its webhooks are ready")
			return nil
		}
		if err == nil {
			for _, line := range workload.Lines(pods.Poll(faults)) {
				o.Report.Warn("%s", line)
			}
		}
		if pods.Lasting == lastingPolls {
			return fmt.Errorf("waiting for the controller: its pods cannot start: %w", missing)
		}
		if stop := wake.After(ctx, poll); stop != nil {
			return fmt.Errorf(
				"waiting for the controller: %w (%w): look at kubectl -n %s get pods, and install again or with a longer --timeout",
				stop, errors.Join(missing, err), Namespace)
		}
	}
}

// lastingPolls is the number of consecutive polls that find a fault that does not pass by itself,
// after which Await returns.
const lastingPolls = 20

// notReady returns what is missing until rules can be written and are applied, or nil, and the
// faults of pods in it.
func notReady(ctx context.Context, c client.Client) (faults []workload.Fault, missing, err error) {
	s, err := workload.Read(ctx, c, Namespace, nil, []string{ControllerName, WebhookName})
	if err != nil {
		return nil, nil, err
	}
	if faults = s.Faults(); len(faults) > 0 {
		return faults, errors.New(strings.Join(workload.Lines(faults), "; ")), nil
	}
	w := &admissionv1.ValidatingWebhookConfiguration{}
	if err := c.Get(ctx, client.ObjectKey{Name: WebhookName}, w); err != nil {
		return nil, nil, fmt.Errorf("reading the configuration of the webhooks: %w", err)
	}
	for _, hook := range w.Webhooks {
		if len(hook.ClientConfig.CABundle) == 0 {
			return nil, fmt.Errorf("the webhook %s has no certificate yet", hook.Name), nil
		}
	}
	return nil, nil, nil
}
