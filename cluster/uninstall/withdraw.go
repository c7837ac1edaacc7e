package uninstall

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/wake"
)

// Times of a withdrawal.
const (
	// withdrawFor limits the wait for the agent of service discovery, which may not run.
	withdrawFor = 10 * time.Second
	// followedAfter is the time after which other clusters use the endpoints no more: 0.1 to 0.4 s
	// until their EndpointSlices have changed, and a second between two writes of kube-proxy.
	followedAfter = 2 * time.Second
	// restoreFor limits the request that turns service discovery on again.
	restoreFor = 5 * time.Second
)

// withdraw withdraws what the cluster exports while its cables are still up: what other clusters
// send to its pods afterwards is lost. It turns service discovery off, which makes the agent empty
// the pages of exports; the gateway publishes that. Whoever interrupts it has service discovery as
// before.
func (u *Operation) withdraw(ctx context.Context, sub *v1alpha1.Submariner) error {
	if exports, err := u.exports(ctx, sub.Spec.ClusterID); err != nil || !exports {
		return err
	}
	u.Report.Step("withdrawing the exported Services")
	had := sub.Spec.ServiceDiscoveryEnabled
	if err := u.discovery(ctx, sub, false); err != nil {
		return err
	}
	err := u.awaitWithdrawal(ctx, sub.Spec.ClusterID)
	if err == nil {
		return nil
	}
	restore, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreFor)
	defer cancel()
	return errors.Join(err, u.discovery(restore, sub, had))
}

// discovery turns service discovery on or off.
func (u *Operation) discovery(ctx context.Context, sub *v1alpha1.Submariner, on bool) error {
	was := sub.DeepCopy()
	sub.Spec.ServiceDiscoveryEnabled = on
	if err := u.Cluster.Patch(ctx, sub, client.MergeFrom(was), client.FieldOwner(kube.FieldOwner)); err != nil {
		return fmt.Errorf("changing whether service discovery is on: %w", err)
	}
	return nil
}

// awaitWithdrawal waits until other clusters use no endpoints of the cluster, or until the agent of
// service discovery had its time.
func (u *Operation) awaitWithdrawal(ctx context.Context, id string) error {
	limit, cancel := context.WithTimeout(ctx, withdrawFor)
	defer cancel()
	for {
		exports, err := u.exports(ctx, id)
		if err != nil {
			return err
		}
		if !exports {
			break
		}
		if wake.After(limit, cluster.Poll) != nil {
			if ctx.Err() == nil {
				u.Report.Warn("the agent of service discovery does not withdraw the exported Services: other clusters "+
					"may lose connections to them for up to %v", followedAfter)
			}
			return ctx.Err()
		}
	}
	if err := wake.After(ctx, followedAfter); err != nil {
		return err
	}
	u.Report.Done("the exported Services are withdrawn")
	return nil
}

// exports reports whether the cluster publishes Services.
func (u *Operation) exports(ctx context.Context, id string) (bool, error) {
	pages := &v1alpha1.ExportedServicesList{}
	err := u.Cluster.List(ctx, pages, client.InNamespace(cluster.Namespace))
	if kube.NotThere(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("listing what the cluster exports: %w", err)
	}
	for n := range pages.Items {
		page := &pages.Items[n]
		_, is := v1alpha1.ExportedServicesPage(id, page.Name)
		if is && !submarinerv1.IsCopy(page) && len(page.Spec.Services) > 0 {
			return true, nil
		}
	}
	return false, nil
}
