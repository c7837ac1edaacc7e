package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/cli"
	"subctl/internal/kube"
	"subctl/internal/printer"
	"subctl/internal/words"
)

const exportServiceLong = `Export a Service, so that other clusters reach it: create a ServiceExport with its name.

With service discovery (docs/services.md), pods of all clusters that have the namespace and share a
clusterset with this one reach the Service as NAME.NAMESPACE.svc.clusterset.local. The name and the
clusters are printed once the Service is published.

In a cluster with a global network (docs/globalnet.md), the Service gets a global address, which is
printed once the gateways translate it, and at which its ports lead to its ready endpoints. A
headless Service gets an address for each of its pods. A cluster with neither service discovery nor
a global network ignores exports: there, other clusters reach all Services by the addresses that
they have.

--spread and --direct set annotations of the ServiceExport, and --spread=false and --direct=false
remove them; without these flags, an existing export keeps its annotations.

-o json and -o yaml print the ServiceExport, as a file for "kubectl apply -f". A Service that is
exported already is no error. A Service that does not exist yet can be exported with such a file
only. The exit code is 3 if the Service is not published within --timeout, has no global address
within that time, or the gateways do not translate it. A user who may not read the gateways or the
clusters is not told about them.`

const exportServiceExample = `  # print what would be created, and export the Service
  subctl export service web -n default --dry-run -o yaml
  subctl export service web -n default

  # use the pods of all clusters alike, instead of the own ones first
  subctl export service web -n default --spread`

// exportTimeout is the default of --timeout. An export is published and gets its address within a
// second; the rest is for an agent that is just starting.
const exportTimeout = 30 * time.Second

type exportService struct {
	serviceChange
	flags   exportFlags
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
	o.flags.add(c)
	c.Flags().BoolVar(&o.wait, "wait", true, "wait until other clusters can reach the Service, and print how")
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
	set, err := o.settings(ctx, c)
	if err != nil {
		return err
	}
	current, err := o.find(ctx, c)
	if err != nil {
		return err
	}
	if current == nil {
		if err := o.checkKind(ctx, c); err != nil {
			return err
		}
	}
	export := &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Name: o.name, Namespace: o.namespace}}
	if current != nil {
		export = current.DeepCopy()
	}
	changes := o.flags.apply(export)
	if err := o.print(c, export, o.action(current != nil, changes)); err != nil || o.dryRun {
		return err
	}
	if err := o.write(ctx, c, current, export, changes); err != nil {
		return err
	}
	if !o.wait || set.known && !set.discovery && !set.global {
		return nil
	}
	return o.await(ctx, c, set)
}

// action describes what is written.
func (o *exportService) action(exists bool, changes []string) string {
	switch {
	case exists && len(changes) == 0:
		return "nothing: " + o.service() + " is exported already"
	case exists:
		return fmt.Sprintf("change ServiceExport %s: %s", o.key(), strings.Join(changes, ", "))
	case len(changes) == 0:
		return "create ServiceExport " + o.key().String()
	}
	return fmt.Sprintf("create ServiceExport %s: %s", o.key(), strings.Join(changes, ", "))
}

// write creates or changes the ServiceExport, and reports it. current is nil if there is none.
func (o *exportService) write(ctx context.Context, c client.Client, current, export *mcsv1alpha1.ServiceExport,
	changes []string,
) error {
	switch {
	case current == nil:
		if err := o.create(ctx, c, export); err != nil {
			return err
		}
		o.progress().Done("exported %s", o.service())
	case len(changes) == 0:
		o.progress().Done("%s is exported already", o.service())
	default:
		err := c.Patch(ctx, export, client.MergeFrom(current), client.FieldOwner(kube.FieldOwner))
		if err != nil {
			return fmt.Errorf("changing ServiceExport %s: %w", o.key(), err)
		}
		o.progress().Done("changed the export of %s: %s", o.service(), strings.Join(changes, ", "))
	}
	return nil
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
		return fmt.Errorf(
			"%s is of type ExternalName, and has no endpoints in this cluster: export a Service with endpoints, or use the name %s in the other clusters",
			o.service(), service.Spec.ExternalName)
	case service.Labels[mcsv1alpha1.LabelServiceName] != "":
		return fmt.Errorf("%s belongs to an import, and its endpoints are in other clusters: export Service %s there",
			o.service(), printer.Clean(service.Labels[mcsv1alpha1.LabelServiceName]))
	}
	return nil
}

// noService returns the error about a Service that does not exist. It names a similar one to users
// who may list Services.
func (o *exportService) noService(ctx context.Context, c client.Client) error {
	names, err := exportable(ctx, c, o.namespace)
	near := words.Nearest(o.name, names)
	switch {
	case err == nil && near != "":
		return fmt.Errorf("there is no Service %s in namespace %s: did you mean %s?", o.name, o.namespace, near)
	case err == nil && len(names) == 0:
		return fmt.Errorf(
			"there is no Service %s in namespace %s, which has no Services to export: specify another namespace with --namespace, or another cluster with --context",
			o.name, o.namespace)
	}
	return fmt.Errorf("there is no Service %s in namespace %s: kubectl get services -n %s lists those that there "+
		"are; specify another namespace with --namespace. "+
		"To export it before it exists, apply a ServiceExport with kubectl", o.name, o.namespace, o.namespace)
}

// exportable returns the names of the Services of a namespace that can be exported and are not,
// sorted.
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
		return s.Spec.Type == corev1.ServiceTypeExternalName || s.Labels[mcsv1alpha1.LabelServiceName] != "" ||
			slices.Contains(done, s.Name)
	})), nil
}

// exportSettings are the settings of the cluster that decide how other clusters reach exported
// Services.
type exportSettings struct {
	cluster           string
	discovery, global bool
	// known is false for a user who may not read the settings. The conditions of the ServiceExport
	// tell them.
	known bool
}

// settings reads the settings. If an export changes nothing, it warns.
func (o *exportService) settings(ctx context.Context, c client.Client) (exportSettings, error) {
	key := client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: v1alpha1.SubmarinerName}
	sub, err := kube.Optional(ctx, c, &v1alpha1.Submariner{}, key)
	switch {
	case kube.Unreadable(err):
		return exportSettings{}, nil
	case err != nil:
		return exportSettings{}, err
	case sub == nil:
		return exportSettings{}, errors.New(
			"this cluster has not joined, so no other cluster can reach its Services: " +
				"run \"subctl join\", or choose another cluster with --context",
		)
	}
	set := exportSettings{
		cluster: sub.Spec.ClusterID, discovery: sub.Spec.ServiceDiscoveryEnabled,
		global: sub.Spec.GlobalCIDR != "", known: true,
	}
	if !set.discovery && !set.global {
		o.progress().Warn("service discovery is off in cluster %s: other clusters reach its Services by the addresses "+
			"that they have, and the ServiceExport changes nothing until subctl join --service-discovery",
			set.cluster)
	}
	return set, nil
}

// errNoExports is the error of a cluster without the kind.
var errNoExports = fmt.Errorf("this cluster has no ServiceExports (CustomResourceDefinition %s), which subctl join "+
	"installs with service discovery or a global network. Nothing was changed; other clusters reach the Service by its "+
	"address without an export if subctl show networks prints no global network", mcsv1alpha1.ServiceExportFullName)

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
