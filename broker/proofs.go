package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/internal/kube"
	"subctl/internal/wake"
)

// This file publishes the proofs that a cluster was removed: see exchange.Revoked.

const (
	// publishPause is the pause between two attempts to publish a proof.
	publishPause = 100 * time.Millisecond
	// publishLimit is the time after which no proof of a command is attempted again: a full quota
	// counts a deleted object for some seconds.
	publishLimit = 10 * time.Second
	// rightsLast is how long API servers may go on accepting what a cluster without rights writes.
	rightsLast = time.Second
)

// publishAround publishes the proofs that a cluster was removed, calls take, which ends the rights
// of the cluster, and publishes the proofs again that are not there, at once and after rightsLast:
// the cluster may have changed them until its rights ended, or kept them from being published. So
// it calls take whether the first attempts succeed or not. administrator has signed the proofs.
//
// If the command is interrupted, the proofs show where the cluster was, or any Cluster that it has
// put in their place. Only if it has deleted a proof before take, and the command ends directly
// after, is nothing left in that clusterset.
func publishAround(
	ctx context.Context,
	c client.Client,
	proofs []*submarinerv1.Cluster,
	administrator trust.PublicKey,
	take func() error,
) error {
	_ = kube.ForEach(proofs, func(_ int, proof *submarinerv1.Cluster) error {
		_ = publish(ctx, c, proof, administrator) // the error counts after take only
		return nil
	})
	taken := take()
	limit, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	err := publishAll(limit, c, proofs, administrator)
	if len(proofs) > 0 && err == nil && wake.After(limit, rightsLast) == nil {
		err = publishAll(limit, c, proofs, administrator)
	}
	return errors.Join(err, taken)
}

// publishAll publishes proofs, and repeats attempts that fail until limit ends.
func publishAll(
	limit context.Context,
	c client.Client,
	proofs []*submarinerv1.Cluster,
	administrator trust.PublicKey,
) error {
	errs := make([]error, len(proofs))
	_ = kube.ForEach(proofs, func(i int, proof *submarinerv1.Cluster) error {
		err := publish(limit, c, proof, administrator)
		for mayPass(err) && wake.After(limit, publishPause) == nil {
			if again := publish(limit, c, proof, administrator); limit.Err() == nil {
				err = again // else it only tells that the time is over
			}
		}
		if err != nil {
			errs[i] = fmt.Errorf("publishing in namespace %s that cluster %s was removed: %w", proof.Namespace,
				proof.Name, err)
		}
		return nil
	})
	return errors.Join(errs...)
}

// mayPass reports whether an attempt that failed with err may succeed if it is repeated.
func mayPass(err error) bool {
	return err != nil && (!apierrors.IsForbidden(err) || isFull(err))
}

// publish makes a proof the Cluster of its name, in one attempt, unless there is one that covers
// it: another administrator may have published it. It replaces any other Cluster of the name by a
// new object. Applying it would keep the owner of one that the holder of a join file has made in
// the meantime, with which the broker would delete it. A clusterset that is being deleted, or was,
// has no members, and needs no proof.
func publish(ctx context.Context, c client.Client, proof *submarinerv1.Cluster, administrator trust.PublicKey) error {
	there := &submarinerv1.Cluster{}
	err := c.Get(ctx, client.ObjectKeyFromObject(proof), there)
	if err == nil {
		if exchange.Covers(there, proof, administrator) {
			return nil
		}
		err = c.Delete(ctx, there, client.Preconditions{ResourceVersion: &there.ResourceVersion})
	}
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	err = kube.Settled(func() error { return c.Create(ctx, proof.DeepCopy(), client.FieldOwner(kube.FieldOwner)) })
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}
