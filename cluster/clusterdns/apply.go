package clusterdns

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/kube"
)

// Settings are the input of Install and Remove besides the cluster.
type Settings struct {
	Version string                 // of the API server
	Ref     *v1alpha1.ConfigMapRef // Submariner.spec.coreDNSCustomConfig
	Address string                 // of the DNS servers of subctl; Remove does not need it
}

// Install makes the cluster's DNS forward names of imported Services to the address, and gives the
// agent of service discovery the right to repair that. It returns the plan that it has carried out.
// Where the user lacks a right, the plan has the commands for an administrator in place of the
// changes.
func Install(ctx context.Context, c client.Client, s Settings) (Hook, error) {
	h, err := carryOut(ctx, c, s, func(f Facts) Hook { return Plan(f, s.Address) })
	if err != nil || !h.Ours || h.Reason != "" {
		return h, err
	}
	err = kube.Install(ctx, c, kube.FieldOwner, RoleFor(h), nil)
	if apierrors.IsForbidden(err) {
		h.Notes = append(h.Notes, fmt.Sprintf("if somebody removes the block from %s, no agent adds it again: %v",
			h.Where, err))
		err = nil
	}
	return h, err
}

// Remove undoes Install. It first takes the agent's right to repair, so that the agent adds nothing
// again.
func Remove(ctx context.Context, c client.Client, s Settings) (Hook, error) {
	if err := RemoveRights(ctx, c); err != nil {
		return Hook{}, err
	}
	return carryOut(ctx, c, s, Undo)
}

// carryOut reads, plans and makes the changes, again if somebody else changes the same objects.
func carryOut(ctx context.Context, c client.Client, s Settings, plan func(Facts) Hook) (h Hook, err error) {
	var f Facts
	err = kube.Settled(func() error {
		if f, err = Read(ctx, c, s.Version, s.Ref); err != nil {
			return fmt.Errorf("reading the configuration of the cluster's DNS: %w", err)
		}
		h = plan(f)
		return apply(ctx, c, h.Changes)
	})
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) {
		return h.byHand(err.Error(), byHandOf(h)), nil // it names the object and the right, and does not end
	}
	return h, err
}

// byHandOf returns the advice for a change that the user may not make.
func byHandOf(h Hook) string {
	if h.Stanza == "" {
		return "let an administrator of the cluster run subctl uninstall, or remove the block of subctl"
	}
	return "let an administrator of the cluster run subctl join again, or add this to " + h.Where + ":\n" + h.Stanza
}

func apply(ctx context.Context, c client.Client, changes []Change) error {
	for _, change := range changes {
		if err := change.write(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// write writes a change. If the object has changed since it was read, the error is a conflict.
func (ch Change) write(ctx context.Context, c client.Client) error {
	obj := ch.After
	var err error
	switch {
	case ch.Before == nil:
		err = c.Create(ctx, obj, client.FieldOwner(kube.FieldOwner))
	case ch.After == nil:
		obj = ch.Before
		version := obj.GetResourceVersion()
		err = c.Delete(ctx, obj, client.Preconditions{ResourceVersion: &version})
	default:
		err = c.Update(ctx, obj, client.FieldOwner(kube.FieldOwner))
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return apierrors.NewConflict(schema.GroupResource{}, obj.GetName(), err)
	}
	if err != nil {
		return fmt.Errorf("changing %s %s: %w", kindOf(obj), client.ObjectKeyFromObject(obj), err)
	}
	return nil
}

func kindOf(obj client.Object) string {
	if kind := obj.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return kind
	}
	return kube.KindOf(obj)
}

// RemoveRights removes what RoleFor returns, the rights before the policy that limits them.
func RemoveRights(ctx context.Context, c client.Client) error {
	for _, obj := range slices.Backward(RoleFor(Hook{Kind: Corefile})) {
		found, err := kube.Optional(ctx, c, obj, client.ObjectKeyFromObject(obj))
		if err == nil && found != nil && found.GetLabels()[submarinerv1.ManagedByLabel] == submarinerv1.ManagedBy {
			err = c.Delete(ctx, found, client.PropagationPolicy(metav1.DeletePropagationBackground))
		}
		if err != nil && !kube.Unreadable(err) { // who may not delete them cannot have made them
			return fmt.Errorf("removing the right to repair the cluster's DNS: %w", err)
		}
	}
	return nil
}
