package join

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/wake"
)

// removeServices removes the agent of service discovery and the DNS servers from a cluster without
// service discovery. Before that, the agent deletes what it has imported. If it does not, it stays,
// and the next join removes it. The definitions of the Multi-Cluster Services API stay: with them,
// the objects of users would go.
func (j *Operation) removeServices(ctx context.Context) error {
	if j.Plan.Submariner.Spec.ServiceDiscoveryEnabled {
		return nil
	}
	left, err := j.left(ctx, cluster.ServiceDiscoveryName, submarinerv1.ServicesLease)
	if err == nil && len(left) > 0 {
		j.Report.Step("removing service discovery")
		var held string
		if held, err = j.awaitImports(ctx); err == nil && held != "" {
			j.Report.Warn("the agent of service discovery is not removed yet: ServiceImport %s still exists; when "+
				"the agent "+
				"has deleted it, join again", held)
			return nil
		}
	}
	if err == nil && len(left) > 0 {
		if err = j.deleteAll(ctx, left); err == nil {
			j.Report.Done("removed service discovery")
		}
	}
	if apierrors.IsForbidden(err) {
		if b := j.Plan.Before; b != nil && b.Spec.ServiceDiscoveryEnabled {
			j.Report.Warn("service discovery is not removed, and does nothing: %v; let an administrator of the "+
				"cluster join "+
				"again", err)
		}
		return nil // to read and delete them is no right that joining needs
	}
	return err
}

// awaitImports waits until the agent of service discovery has deleted its ServiceImports. It
// returns one that is still there after releaseLimit; empty if there is none.
func (j *Operation) awaitImports(ctx context.Context) (held string, err error) {
	limit, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	for {
		all, err := kube.ListMetadata(ctx, j.Member,
			mcsv1alpha1.SchemeGroupVersion.WithKind(mcsv1alpha1.ServiceImportKindName), "")
		if err != nil {
			return "", err
		}
		held = ""
		for _, o := range all {
			if cluster.IsOurs(o.Labels) {
				held = fmt.Sprintf("%s/%s", o.Namespace, o.Name)
			}
		}
		if held == "" || wake.After(limit, cluster.Poll) != nil {
			return held, ctx.Err()
		}
	}
}
