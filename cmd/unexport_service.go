package cmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/words"
)

const unexportServiceLong = `Stop exporting a Service: delete its ServiceExport.

With service discovery, the endpoints of this cluster disappear from NAME.NAMESPACE.svc.clusterset.local
in all clusters, this one included, within seconds. The name stays as long as another cluster exports
the Service; otherwise it and its address disappear, too. Connections by addresses of pods, and the
name NAME.NAMESPACE.svc.cluster.local in this cluster, are not affected.

With a global network, other clusters can then no longer reach the Service by its global address,
which becomes free. Connections that exist end. Pods of a headless Service keep their addresses if
another exported Service has them as endpoints, or if they have addresses of their own.

-o json and -o yaml print the ServiceExport, as a file for "kubectl apply -f". The exit code is 1
if the Service is not exported.`

const unexportServiceExample = `  subctl unexport service web -n default --dry-run
  subctl unexport service web -n default`

type unexportService struct{ serviceChange }

func newUnexportService(g *globals) *cobra.Command {
	o := &unexportService{serviceChange{globals: g}}
	c := &cobra.Command{
		Use:     "service NAME",
		Aliases: []string{"services", "svc"},
		Short:   "Stop exporting a Service",
		Long:    unexportServiceLong,
		Example: unexportServiceExample,
		RunE:    func(c *cobra.Command, _ []string) error { return o.forEditors(o.run(c.Context())) },
	}
	o.addFlags(c, exports)
	return c
}

func (o *unexportService) run(ctx context.Context) error {
	c, err := o.open(ctx)
	if err != nil {
		return err
	}
	export, err := o.find(ctx, c)
	if err != nil {
		return err
	}
	if export == nil {
		return o.notExported(ctx, c)
	}
	if err := o.print(c, export, "delete ServiceExport "+o.key().String()); err != nil || o.dryRun {
		return err
	}
	if err := c.Delete(ctx, export, client.Preconditions{UID: &export.UID}); err != nil {
		return fmt.Errorf("deleting ServiceExport %s: %w", o.key(), err)
	}
	o.progress().Done("%s is not exported any more", o.service())
	return nil
}

// notExported returns the error about a Service that is not exported. If the user may, it names
// those that are.
func (o *unexportService) notExported(ctx context.Context, c client.Client) error {
	names, err := exports(ctx, c, o.namespace)
	switch {
	case err != nil:
		return fmt.Errorf(
			"%s is not exported: there is no such ServiceExport; choose another Service, namespace or cluster",
			o.service())
	case len(names) == 0:
		return fmt.Errorf(
			"%s is not exported: namespace %s exports no Services; choose another one with --namespace, or another cluster with --context",
			o.service(), o.namespace)
	}
	return fmt.Errorf("%s is not exported: namespace %s exports %s; specify another one with --namespace", o.service(),
		o.namespace, words.List(names))
}
