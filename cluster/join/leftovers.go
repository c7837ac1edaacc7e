package join

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/wake"
)

// releaseLimit is the time for which join waits until the globalnet agent has released the
// addresses of a global network that the cluster no longer has. The agent releases 400 in a second
// or less.
const releaseLimit = 10 * time.Second

// globalnetStays is the warning that the agent is not removed, with the reason.
const globalnetStays = "the globalnet agent is not removed: %v; let an administrator of the cluster join again"

// removeGlobalnet removes what only a cluster with a global network holds from a cluster without:
// the globalnet agent with its rights, its memory and its lease. Before that, the agent deletes the
// objects that it has made. If it does not, it stays, and the next join removes it. The definition
// of ServiceExports stays: with it, the ServiceExports of users would go.
func (j *Operation) removeGlobalnet(ctx context.Context) error {
	if j.Plan.Submariner.Spec.GlobalCIDR != "" {
		return nil
	}
	left, err := j.leftObjects(ctx, cluster.GlobalnetName, submarinerv1.GlobalnetLease)
	if apierrors.IsForbidden(err) {
		if b := j.Plan.Before; b != nil && b.Spec.GlobalCIDR != "" {
			j.Report.Warn(globalnetStays, err)
		}
		return nil // to read them is no right that joining needs
	}
	if err != nil || len(left) == 0 {
		return err
	}
	j.Report.Step("removing the globalnet agent")
	held, err := j.awaitRelease(ctx)
	if err != nil {
		return err
	}
	if held != "" {
		j.Report.Warn(
			"the globalnet agent is not removed yet: %s still has an address of the former global network; when the agent has released it, join again",
			held)
		return nil
	}
	if err := j.deleteAll(ctx, left); apierrors.IsForbidden(err) {
		j.Report.Warn(globalnetStays, err)
		return nil
	} else if err != nil {
		return err
	}
	switch err := cluster.RemoveAnnotations(ctx, j.Member); {
	case apierrors.IsForbidden(err):
		j.Report.Warn("pods and Services may keep annotations with global addresses, which have no effect: %v", err)
	case err != nil:
		return err
	}
	j.Report.Done("removed the globalnet agent")
	return nil
}

// removeGatewayNodes removes the agent that replaces gateway nodes, with its rights, from a cluster
// that keeps no number of them.
func (j *Operation) removeGatewayNodes(ctx context.Context) error {
	if cluster.KeepsGateways(j.Plan.Submariner) {
		return nil
	}
	left, err := j.leftObjects(ctx, cluster.GatewayNodesName, submarinerv1.GatewayNodesLease)
	if err == nil {
		err = j.deleteAll(ctx, left)
	}
	if apierrors.IsForbidden(err) {
		if b := j.Plan.Before; b != nil && cluster.KeepsGateways(b) {
			j.Report.Warn("the agent that replaces gateway nodes is not removed, and does nothing: %v; let an "+
				"administrator of the cluster join again", err)
		}
		return nil // to read and delete them is no right that joining needs
	}
	return err
}

// deleteAll deletes objects, the last one first.
func (j *Operation) deleteAll(ctx context.Context, objs []client.Object) error {
	for _, obj := range slices.Backward(objs) {
		err := j.Member.Delete(ctx, obj, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if err != nil && !kube.NotThere(err) {
			return fmt.Errorf("deleting %s %s: %w", kube.KindOf(obj), obj.GetName(), err)
		}
	}
	return nil
}

// leftObjects returns the objects of the cluster that it holds no longer, of an agent that acts for
// the whole cluster, and the agent's lease. The Deployment is the last of them, and is deleted
// first.
func (j *Operation) leftObjects(ctx context.Context, agent, leaseName string) ([]client.Object, error) {
	everything, err := cluster.Everything()
	if err != nil {
		return nil, err
	}
	kept, err := cluster.Render(j.Plan.Submariner)
	if err != nil {
		return nil, err
	}
	name := func(o client.Object) string { return kube.KindOf(o) + " " + o.GetNamespace() + "/" + o.GetName() }
	keep := map[string]bool{}
	for _, obj := range kept {
		keep[name(obj)] = true
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaseName, Namespace: cluster.Namespace}}
	var left []client.Object
	for _, obj := range append([]client.Object{lease}, everything...) {
		if keep[name(obj)] || cluster.IsServicesDefinition(obj.GetName()) ||
			obj != client.Object(lease) && agentOf(obj) != agent {
			continue
		}
		found, err := kube.Optional(ctx, j.Member, obj, client.ObjectKeyFromObject(obj))
		switch {
		case err != nil:
			return nil, err
		case found != nil && (obj == client.Object(lease) || cluster.IsOurs(found.GetLabels())):
			left = append(left, found)
		}
	}
	return left, nil
}

// agentOf returns the name of the agent that an object is for, of those that act for the whole
// cluster.
func agentOf(obj client.Object) string {
	switch name := obj.GetName(); name {
	case cluster.GatewayNodesName, cluster.ServiceDiscoveryName:
		return name
	case cluster.DNSName:
		return cluster.ServiceDiscoveryName
	}
	return cluster.GlobalnetName
}

// awaitRelease waits until no object has a global address. It returns an object that still has one
// after releaseLimit; empty if none has.
func (j *Operation) awaitRelease(ctx context.Context) (held string, err error) {
	limit, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	for {
		if held, err = j.holder(ctx); err != nil || held == "" {
			return held, err
		}
		if wake.After(limit, cluster.Poll) != nil {
			return held, ctx.Err()
		}
	}
}

// holder returns an object that has a global address, or that the globalnet agent has made to have
// one; empty if there is none.
func (j *Operation) holder(ctx context.Context) (string, error) {
	ingress := &submarinerv1.GlobalIngressIPList{}
	shared := &submarinerv1.ClusterGlobalEgressIPList{}
	egress := &submarinerv1.GlobalEgressIPList{}
	for _, list := range []client.ObjectList{ingress, shared, egress} {
		if err := j.Member.List(ctx, list); err != nil && !kube.Unreadable(err) {
			return "", fmt.Errorf("looking for global addresses: %w", err)
		}
	}
	for _, o := range ingress.Items {
		if cluster.IsOurs(o.Labels) || o.Status.AllocatedIP != "" {
			return "GlobalIngressIP " + o.Namespace + "/" + o.Name, nil
		}
	}
	for _, o := range shared.Items {
		if cluster.IsOurs(o.Labels) || len(o.Status.AllocatedIPs) > 0 {
			return "ClusterGlobalEgressIP " + o.Name, nil
		}
	}
	for _, o := range egress.Items {
		if len(o.Status.AllocatedIPs) > 0 {
			return "GlobalEgressIP " + o.Namespace + "/" + o.Name, nil
		}
	}
	return "", nil
}

// removeServices removes the agent of service discovery and the DNS servers from a cluster without
// service discovery. Before that, the agent deletes what it has imported. If it does not, it stays,
// and the next join removes it. The definitions of the Multi-Cluster Services API stay: with them,
// the objects of users would go.
func (j *Operation) removeServices(ctx context.Context) error {
	if j.Plan.Submariner.Spec.ServiceDiscoveryEnabled {
		return nil
	}
	left, err := j.leftObjects(ctx, cluster.ServiceDiscoveryName, submarinerv1.ServicesLease)
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
