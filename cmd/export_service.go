package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/agent/mesh"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/internal/cli"
	"subctl/internal/kube"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/wake"
	"subctl/internal/words"
)

const exportServiceLong = `Export a Service, so that other clusters reach it: create a ServiceExport with its name.

In a cluster with a global network (docs/globalnet.md) the Service gets a global address, which is
printed once the gateways translate it, and at which its ports lead to its ready endpoints. A
headless Service gets an address for each of its pods. A cluster without a global network has no
such addresses: there, other clusters reach all Services by the addresses that they have, whether
they are exported or not.

-o json and -o yaml print the ServiceExport, as a file for "kubectl apply -f". A Service that is
exported already is no error. The exit code is 3 if the Service has no address within --timeout,
or the gateways do not translate it. A user who may not read the gateways is not told whether they
do.`

const exportServiceExample = `  # print what would be created, and export the Service
  subctl export service web -n default --dry-run -o yaml
  subctl export service web -n default`

// exportTimeout is the default of --timeout. An address is allocated within a second; the rest is for an agent that
// is just starting.
const exportTimeout = 30 * time.Second

type exportService struct {
	serviceChange
	wait    bool
	timeout time.Duration
}

func newExportService(g *globals) *cobra.Command {
	o := &exportService{serviceChange: serviceChange{globals: g}}
	c := &cobra.Command{
		Use:     "service NAME",
		Aliases: []string{"services", "svc"},
		Short:   "Let other clusters reach a Service",
		Long:    exportServiceLong,
		Example: exportServiceExample,
		RunE:    func(c *cobra.Command, _ []string) error { return o.forEditors(o.run(c.Context())) },
	}
	o.addFlags(c, exportable)
	c.Flags().BoolVar(&o.wait, "wait", true, "wait until the Service has its global address, and print it")
	cli.TimeLimit(c, &o.timeout, exportTimeout, "time limit for --wait")
	return c
}

func (o *exportService) run(ctx context.Context) error {
	c, err := o.open(ctx)
	if err != nil {
		return err
	}
	if err := o.check(ctx, c); err != nil {
		return err
	}
	global, err := o.global(ctx, c)
	if err != nil {
		return err
	}
	export, err := o.find(ctx, c)
	if err != nil {
		return err
	}
	exported := export != nil
	if !exported {
		if err := o.checkKind(ctx, c); err != nil {
			return err
		}
	}
	action := "nothing: " + o.service() + " is exported already"
	if !exported {
		export, action = &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Name: o.name, Namespace: o.namespace}}, "create ServiceExport "+o.key().String()
	}
	if err := o.print(c, export, action); err != nil || o.dryRun {
		return err
	}
	switch {
	case exported:
		o.progress().Done("%s is exported already", o.service())
	default:
		if err := o.create(ctx, c, export); err != nil {
			return err
		}
		o.progress().Done("exported %s", o.service())
	}
	if !o.wait || !global {
		return nil
	}
	return o.await(ctx, c)
}

// check returns an error if the Service cannot be exported.
func (o *exportService) check(ctx context.Context, c client.Client) error {
	service, err := kube.Optional(ctx, c, &corev1.Service{}, o.key())
	switch {
	case err != nil:
		return err
	case service == nil:
		return o.noService(ctx, c)
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return fmt.Errorf("%s is of type ExternalName, and has no endpoints in this cluster: export a Service with endpoints, or use the name %s in the other clusters",
			o.service(), service.Spec.ExternalName)
	}
	return nil
}

// noService returns the error about a Service that does not exist. It names a similar one to users who may list Services.
func (o *exportService) noService(ctx context.Context, c client.Client) error {
	names, err := exportable(ctx, c, o.namespace)
	near := words.Nearest(o.name, names)
	switch {
	case err == nil && near != "":
		return fmt.Errorf("there is no Service %s in namespace %s: did you mean %s?", o.name, o.namespace, near)
	case err == nil && len(names) == 0:
		return fmt.Errorf("there is no Service %s in namespace %s, which has no Services to export: specify another namespace with --namespace, or another cluster with --context", o.name, o.namespace)
	}
	return fmt.Errorf("there is no Service %s in namespace %s: kubectl get services -n %s lists those that there are; specify another namespace with --namespace", o.name, o.namespace, o.namespace)
}

// exportable returns the names of the Services of a namespace that can be exported and are not, sorted.
func exportable(ctx context.Context, c client.Client, namespace string) ([]string, error) {
	var list corev1.ServiceList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("reading the Services: %w", err)
	}
	done, err := exports(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	return namesOf(slices.DeleteFunc(list.Items, func(s corev1.Service) bool {
		return s.Spec.Type == corev1.ServiceTypeExternalName || slices.Contains(done, s.Name)
	})), nil
}

// global reports whether the cluster has a global network. If it has none, global warns that the export changes nothing. For a user who may not
// read that, it returns true: the condition of the ServiceExport tells.
func (o *exportService) global(ctx context.Context, c client.Client) (bool, error) {
	sub, err := kube.Optional(ctx, c, &v1alpha1.Submariner{}, client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: v1alpha1.SubmarinerName})
	switch {
	case kube.Unreadable(err):
		return true, nil
	case err != nil:
		return false, err
	case sub == nil:
		return false, errors.New("this cluster has not joined, so no other cluster can reach its Services: run \"subctl join\", or choose another cluster with --context")
	case sub.Spec.GlobalCIDR == "":
		o.progress().Warn("cluster %s has no global network: other clusters reach its Services by the addresses that they have, and the ServiceExport changes nothing there", sub.Spec.ClusterID)
		return false, nil
	}
	return true, nil
}

// errNoExports is the error of a cluster without the kind.
var errNoExports = fmt.Errorf("this cluster has no ServiceExports (CustomResourceDefinition %s), which subctl join "+
	"installs with a global network. Nothing was changed; other clusters reach the Service without an export if "+
	"subctl show networks prints no global network", mcsv1alpha1.ServiceExportFullName)

// checkKind returns an error if the cluster has no ServiceExports.
func (o *exportService) checkKind(ctx context.Context, c client.Client) error {
	if err := c.Get(ctx, o.key(), &mcsv1alpha1.ServiceExport{}); meta.IsNoMatchError(err) {
		return errNoExports
	}
	return nil
}

// create creates the ServiceExport.
func (o *exportService) create(ctx context.Context, c client.Client, export *mcsv1alpha1.ServiceExport) error {
	err := c.Create(ctx, export, client.FieldOwner(kube.FieldOwner))
	switch {
	case kube.NotThere(err):
		return errNoExports
	case client.IgnoreAlreadyExists(err) != nil:
		return fmt.Errorf("creating ServiceExport %s: %w", o.key(), err)
	}
	return nil // exists: somebody else was faster
}

// exportPoll is the interval at which await reads the ServiceExport.
const exportPoll = 200 * time.Millisecond

// await waits until the ServiceExport is Ready, and prints at which address other clusters reach the Service.
func (o *exportService) await(ctx context.Context, c client.Client) error {
	waiting, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	const noReport = "the globalnet agent has not reported: see kubectl -n " + cluster.Namespace + " get deployment " + cluster.GlobalnetName
	last := noReport
	for {
		export, err := o.find(waiting, c)
		switch {
		case waiting.Err() != nil: // it may be half of a read
		case err != nil:
			return err
		case export == nil:
			return fmt.Errorf("somebody has deleted ServiceExport %s: export the Service again", o.key())
		default:
			ready := meta.FindStatusCondition(export.Status.Conditions, string(mcsv1alpha1.ServiceExportConditionReady))
			valid := meta.FindStatusCondition(export.Status.Conditions, string(mcsv1alpha1.ServiceExportConditionValid))
			switch {
			case valid != nil && valid.Status == metav1.ConditionFalse:
				last = printer.Clean(valid.Message)
			case ready == nil:
			case ready.Status == metav1.ConditionTrue:
				missing := o.unprogrammed(waiting, c)
				if len(missing) == 0 {
					o.progress().Done("%s", printer.Clean(ready.Message))
					return nil
				}
				last = "the address is allocated, and not yet programmed by gateway " +
					printer.Clean(words.List(missing))
			case ready.Reason == mesh.ReasonNoGlobalNetwork:
				o.progress().Warn("%s", printer.Clean(ready.Message))
				return nil
			default:
				last = printer.Clean(ready.Message)
			}
		}
		if wake.After(waiting, exportPoll) != nil {
			return cli.Waited(ctx, fmt.Errorf("waiting for the global address of %s: %w: %s. It gets the address without this command, if nothing is in the way: see kubectl get serviceexport %s -n %s -o yaml",
				o.service(), cluster.Interrupted(waiting), last, o.name, o.namespace))
		}
	}
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
