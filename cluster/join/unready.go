package join

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster"
	"subctl/cluster/workload"
	"subctl/internal/kube"
)

// readAgents reads the workloads of the agents, those that act for the whole cluster included.
func (j *Operation) readAgents(ctx context.Context) (*workload.Snapshot, error) {
	var deployments []string
	if j.Plan.Submariner.Spec.GlobalCIDR != "" {
		deployments = append(deployments, cluster.GlobalnetName)
	}
	if cluster.KeepsGateways(j.Plan.Submariner) {
		deployments = append(deployments, cluster.GatewayNodesName)
	}
	daemonSets := []string{cluster.RouteAgentName, cluster.GatewayName}
	return workload.Read(ctx, j.Member, cluster.Namespace, daemonSets, deployments)
}

// unallocated returns a line while the agent of globalnet has not allocated the addresses that the
// pods of the cluster have as their source in other clusters: without them, nothing of the cluster
// reaches anybody.
func (j *Operation) unallocated(ctx context.Context) ([]string, error) {
	if j.Plan.Submariner.Spec.GlobalCIDR == "" {
		return nil, nil
	}
	list := &submarinerv1.ClusterGlobalEgressIPList{}
	err := j.Member.List(ctx, list)
	if apierrors.IsForbidden(err) { // to read them is no right that joining needs
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing ClusterGlobalEgressIPs: %w", err)
	}
	for _, e := range list.Items {
		if len(e.Status.AllocatedIPs) > 0 {
			return nil, nil
		}
	}
	return []string{"the globalnet agent has not allocated global addresses for this cluster yet: see subctl show " +
		"globalnet"}, nil
}

// retryAnnotation, on a workload, is the time when join made its controller try again.
const retryAnnotation = "submariner.io/retried-at"

// retryControllers makes the controllers of workloads whose pods were rejected try again now: after
// some failures they do so minutes later only, when what rejected the pods may be long gone. It
// returns the workloads.
func (j *Operation) retryControllers(
	ctx context.Context,
	faults []workload.Fault,
	now time.Time,
) (out []client.Object) {
	for _, f := range faults {
		if obj := workloadNamed(f.Workload); obj != nil && f.Rejected && !contains(out, obj) {
			out = append(out, obj)
			_ = j.annotate(ctx, obj, now.UTC().Format(time.RFC3339Nano)) // without the right, it only takes longer
		}
	}
	return out
}

// annotate sets retryAnnotation of a workload; the empty value removes it.
func (j *Operation) annotate(ctx context.Context, obj client.Object, value string) error {
	var annotation any
	if value != "" {
		annotation = value
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{retryAnnotation: annotation}},
	})
	if err != nil {
		return err
	}
	return j.Member.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(kube.FieldOwner))
}

// workloadNamed returns the object of a workload of Fault.Workload, with its name only.
func workloadNamed(text string) client.Object {
	for _, obj := range []client.Object{&appsv1.DaemonSet{}, &appsv1.Deployment{}} {
		obj.SetNamespace(cluster.Namespace)
		for _, name := range []string{
			cluster.RouteAgentName, cluster.GatewayName, cluster.GlobalnetName, cluster.GatewayNodesName,
		} {
			if text == kube.KindOf(obj)+" "+name {
				obj.SetName(name)
				return obj
			}
		}
	}
	return nil
}

func contains(all []client.Object, obj client.Object) bool {
	for _, o := range all {
		if o.GetName() == obj.GetName() {
			return true
		}
	}
	return false
}
