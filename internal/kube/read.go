package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Optional reads the object with the given key into into, and returns it. It returns nil,
// without an error, if the object or its kind does not exist.
func Optional[T client.Object](ctx context.Context, c client.Reader, into T, key client.ObjectKey) (T, error) {
	var none T
	err := c.Get(ctx, key, into)
	if NotThere(err) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("reading %T %s: %w", into, key, err)
	}
	return into, nil
}

// NotThere reports whether err means that an object, or its kind, does not exist.
func NotThere(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// Unreadable reports whether err means that an object does not exist, or that the user
// may not read it.
func Unreadable(err error) bool { return NotThere(err) || apierrors.IsForbidden(err) }
