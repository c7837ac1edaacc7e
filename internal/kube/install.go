package kube

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/wake"
)

// installTimeout bounds the wait until the API server serves new kinds.
const installTimeout = 30 * time.Second

// Install applies objects in their order, except that CustomResourceDefinitions come first; the
// others follow when their kinds are served. apply applies one of the others; nil means
// ApplyServed. Install may be interrupted and repeated.
func Install(
	ctx context.Context,
	c client.Client,
	owner string,
	objects []client.Object,
	apply func(context.Context, client.Object) error,
) error {
	ctx, cancel := context.WithTimeoutCause(ctx, installTimeout,
		fmt.Errorf("the API server did not serve what was applied within %s", installTimeout))
	defer cancel()
	if apply == nil {
		apply = func(ctx context.Context, obj client.Object) error { return ApplyServed(ctx, c, owner, obj) }
	}
	var definitions []string
	var others []client.Object
	for _, obj := range objects {
		crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			others = append(others, obj)
			continue
		}
		if err := Apply(ctx, c, owner, crd); err != nil {
			return err
		}
		definitions = append(definitions, crd.Name)
	}
	for _, name := range definitions {
		if err := waitEstablished(ctx, c, name); err != nil {
			return err
		}
	}
	for _, obj := range others {
		if err := apply(ctx, obj); err != nil {
			return err
		}
	}
	return nil
}

// ApplyServed applies obj, whose kind or namespace may not be served yet.
func ApplyServed(ctx context.Context, c client.Client, owner string, obj client.Object) error {
	for {
		err := Apply(ctx, c, owner, obj)
		if err == nil || !NotThere(err) {
			return err
		}
		if wake.After(ctx, 100*time.Millisecond) != nil {
			return err
		}
	}
}

func waitEstablished(ctx context.Context, c client.Client, name string) error {
	for {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
			return fmt.Errorf("waiting for the CRD %s: %w", name, err)
		}
		for _, cond := range crd.Status.Conditions {
			if cond.Type == apiextensionsv1.Established && cond.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
			if cond.Type == apiextensionsv1.NamesAccepted && cond.Status == apiextensionsv1.ConditionFalse {
				return fmt.Errorf("the CRD %s is refused: %s", name, cond.Message)
			}
		}
		if err := wake.After(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("waiting for the CRD %s: %w", name, err)
		}
	}
}
