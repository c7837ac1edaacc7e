package cmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/globalnet/allocator"
	"subctl/internal/cli"
	"subctl/internal/kube"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/wake"
	"subctl/internal/words"
	"subctl/services"
)

// exportPoll is the interval at which await reads the ServiceExport.
const exportPoll = 200 * time.Millisecond

// await waits until the ServiceExport is Ready, and prints how other clusters reach the Service.
func (o *exportService) await(ctx context.Context, c client.Client, set exportSettings) error {
	waiting, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	lacks := set.noReport()
	for {
		export, err := o.find(waiting, c)
		switch {
		case waiting.Err() != nil: // it may be half of a read
		case err != nil:
			return err
		case export == nil:
			return fmt.Errorf("somebody has deleted ServiceExport %s: export the Service again", o.key())
		default:
			lacks = o.lacks(waiting, c, set, export, lacks)
			switch {
			case lacks == "":
				return o.tell(ctx, c, set, export)
			case !set.discovery && exportCondition(export,
				mcsv1alpha1.ServiceExportConditionReady).Reason == allocator.ReasonNoGlobalNetwork:
				o.progress().Warn("%s", lacks)
				return nil
			}
		}
		if wake.After(waiting, exportPoll) != nil {
			return cli.Waited(ctx, fmt.Errorf("waiting until other clusters can reach %s: %w: %s. "+
				"They can without this command once nothing is in the way: see kubectl get serviceexport %s -n %s -o "+
				"yaml",
				o.service(), cluster.Interrupted(waiting), lacks, o.name, o.namespace))
		}
	}
}

// lacks returns why other clusters cannot reach the Service yet; empty if they can. If no agent has
// reported, lacks returns silent.
func (o *exportService) lacks(
	ctx context.Context, c client.Client, set exportSettings, export *mcsv1alpha1.ServiceExport, silent string,
) string {
	valid := exportCondition(export, mcsv1alpha1.ServiceExportConditionValid)
	ready := exportCondition(export, mcsv1alpha1.ServiceExportConditionReady)
	switch {
	case valid.Status == metav1.ConditionFalse:
		return cmp.Or(printer.Clean(valid.Message), valid.Reason)
	case ready.Status == "":
		return silent
	case ready.Status != metav1.ConditionTrue:
		return cmp.Or(printer.Clean(ready.Message), ready.Reason)
	case set.discovery && set.global: // the condition Ready is of another agent
		published := exportCondition(export, services.ConditionPublished)
		switch published.Status {
		case metav1.ConditionTrue:
		case "":
			return set.noReport()
		default:
			return "other clusters do not learn its name: " + cmp.Or(printer.Clean(published.Message), published.Reason)
		}
	}
	if missing := o.unprogrammed(ctx, c); len(missing) > 0 {
		return "the address is allocated, and not yet programmed by gateway " + printer.Clean(words.List(missing))
	}
	return ""
}

// exportCondition returns a condition of an export; the zero Condition if it has none.
func exportCondition(export *mcsv1alpha1.ServiceExport, kind mcsv1alpha1.ServiceExportConditionType) metav1.Condition {
	if c := meta.FindStatusCondition(export.Status.Conditions, string(kind)); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// tell prints how other clusters reach an exported Service.
func (o *exportService) tell(ctx context.Context, c client.Client, set exportSettings,
	export *mcsv1alpha1.ServiceExport,
) error {
	for _, kind := range []mcsv1alpha1.ServiceExportConditionType{
		mcsv1alpha1.ServiceExportConditionReady, services.ConditionPublished,
	} {
		if message := exportCondition(export, kind).Message; message != "" {
			o.progress().Done("%s", printer.Clean(message))
		}
	}
	conflict := exportCondition(export, mcsv1alpha1.ServiceExportConditionConflict)
	if conflict.Status == "" { // only service discovery sets it
		return nil
	}
	readers, err := o.readers(ctx, c)
	switch {
	case apierrors.IsForbidden(err):
		o.progress().Done("clusters that see it: all that share a clusterset with this one and have namespace %s",
			o.namespace)
	case err != nil:
		return err
	case len(readers) == 0:
		o.progress().Warn("no other cluster shares a clusterset with cluster %s: see subctl show clustersets",
			set.cluster)
	default:
		o.progress().Done("clusters that see it, if they have namespace %s: %s", o.namespace,
			printer.Clean(words.List(readers)))
	}
	if conflict.Status == metav1.ConditionTrue {
		o.progress().Warn("conflict with other clusters: %s", printer.Clean(cmp.Or(conflict.Message, conflict.Reason)))
	}
	return nil
}

// readers returns the other clusters that share a clusterset with this one, sorted: all of them
// read the exports.
func (o *exportService) readers(ctx context.Context, c client.Client) ([]string, error) {
	var list submarinerv1.ClusterList
	if err := c.List(ctx, &list, client.InNamespace(submarinerv1.OperatorNamespace)); err != nil {
		return nil, fmt.Errorf("reading the clusters: %w", err)
	}
	var out []string
	for i := range list.Items {
		if id, ok := submarinerv1.OwnerID(&list.Items[i]); ok {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// dnsName returns the name of an exported Service in all clusters.
func dnsName(namespace, name string) string {
	return fmt.Sprintf("%s.%s.svc.%s", name, namespace, services.Domain)
}

// noReport tells which agent has not reported.
func (s exportSettings) noReport() string {
	const see = ": see kubectl -n " + cluster.Namespace + " get deployment "
	switch {
	case s.discovery:
		return "the agent of service discovery has not reported" + see + cluster.ServiceDiscoveryName
	case s.known:
		return "the globalnet agent has not reported" + see + cluster.GlobalnetName
	}
	return "no agent has reported" + see + cluster.ServiceDiscoveryName + " " + cluster.GlobalnetName
}

// unprogrammed returns the active gateways that do not translate all addresses of the Service yet,
// as far as this user may read that: gateways report it every few seconds.
func (o *exportService) unprogrammed(ctx context.Context, c client.Client) []string {
	var list submarinerv1.GlobalIngressIPList
	sub, err := kube.Optional(ctx, c, &v1alpha1.Submariner{}, client.ObjectKey{
		Namespace: submarinerv1.OperatorNamespace, Name: v1alpha1.SubmarinerName,
	})
	s := look.Site{Submariner: sub}
	if err != nil || c.List(ctx, &list, client.InNamespace(o.namespace)) != nil ||
		look.ReadGateways(ctx, c, &s) != nil {
		return nil
	}
	s.Now = o.clock.Now()
	var out []string
	for i := range list.Items {
		is := &list.Items[i]
		if ref := is.Spec.ServiceRef; ref == nil || ref.Name != o.name {
			continue
		}
		missing, _ := s.Unprogrammed(is.ResourceVersion, func(v submarinerv1.ProgrammedVersions) string {
			return v.GlobalIngressIPs
		})
		out = append(out, missing...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
