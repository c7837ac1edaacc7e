// Package install describes what a cluster holds for SD-EWAN, and installs and removes it: the
// kinds, the controller, the webhooks, and the rights of these and of users. It also renders the
// Deployment of a CNF, which users apply themselves.
//
// Rendering depends only on its arguments; Operation and Removal are what changes a cluster.
package install

import (
	"errors"
	"fmt"
	"maps"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/crds"
	"subctl/cluster"
	"subctl/internal/version"
	"subctl/sdewan"
	"subctl/sdewan/webhook"
)

// Names of the installed objects.
const (
	// Namespace is the namespace of the controller and the webhooks.
	Namespace = sdewan.Namespace
	// ControllerName is the name of the controller's objects.
	ControllerName = sdewan.ControllerName
	// WebhookName is the name of the webhooks' Deployment, ServiceAccount, roles, Service and
	// configuration.
	WebhookName = webhook.Name
)

// Options describe an installation.
type Options struct {
	Image    string // empty means the image of this version
	Platform cluster.Platform
	// Of the controller, of which one works and the others stand by, and of the webhooks, which all
	// serve.
	Replicas int32
}

// Validate returns all mistakes.
func (o Options) Validate() error {
	var errs []error
	if err := checkImage(o.Image); err != nil {
		errs = append(errs, err)
	}
	if o.Replicas < 1 || o.Replicas > 5 {
		errs = append(errs, fmt.Errorf("%d replicas of the controller and the webhooks: use 1 to 5", o.Replicas))
	}
	return errors.Join(errs...)
}

// checkImage returns an error if the name of an image cannot be one.
func checkImage(image string) error {
	if image == "" {
		return nil
	}
	if _, err := reference.ParseNormalizedNamed(image); err != nil { // as the kubelet does
		return fmt.Errorf(
			"image %.100q is not the name of an image: %w: specify REGISTRY/REPOSITORY:TAG, such as registry.example/subctl:v1",
			image, err)
	}
	return nil
}

// DefaultImage returns the image of this version.
func DefaultImage() string { return version.Image + ":" + version.Version }

// WebhookOptions returns where the webhooks are.
func WebhookOptions() webhook.Options {
	return webhook.Options{Namespace: Namespace, Service: WebhookName, Account: ControllerName, Port: webhookPort}
}

// Render returns all objects, in an order in which they can be created: the configuration of the
// webhooks last, since it makes the API server ask them. The webhooks themselves write their
// certificate, a Secret, and state it in their configuration. Render fails only if the embedded
// CRDs are broken.
func Render(o Options) ([]client.Object, error) {
	defs, err := crds.SDEWAN()
	if err != nil {
		return nil, err
	}
	out := []client.Object{namespace(), cluster.CriticalPods(Namespace)}
	for _, def := range defs {
		out = append(out, def)
	}
	for _, role := range crds.SDEWANRoles() {
		out = append(out, role)
	}
	for _, c := range components() {
		out = append(out, c.account(o.Platform)...)
		out = append(out, c.deployment(o))
	}
	out = append(out, service(), webhook.Configuration(WebhookOptions()))
	for _, obj := range out {
		labels := maps.Clone(obj.GetLabels())
		if labels == nil {
			labels = map[string]string{}
		}
		labels[cluster.ManagedByLabel] = cluster.ManagedBy
		obj.SetLabels(labels)
	}
	return out, nil
}

// namespace returns the namespace, whose pods have no privileges.
func namespace() *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name:   Namespace,
			Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		},
	}
}

// app returns the label by which the pods of a component are selected.
func app(name string) map[string]string { return map[string]string{"app": name} }
