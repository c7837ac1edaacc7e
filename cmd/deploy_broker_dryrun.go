package cmd

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/broker"
	"subctl/broker/trust"
	"subctl/internal/cli"
	"subctl/internal/words"
)

// print prints the objects to apply. Keys that do not exist yet have no fingerprint.
func (o *deployBrokerOptions) print(g *globals, c client.Client, keys broker.Keys) error {
	var missing []string
	if keys.PSKOrigin == broker.NewKey {
		missing = append(missing, broker.PSKFingerprintAnnotation)
		o.render.PSKFingerprint = ""
	}
	if keys.AdministratorOrigin == broker.NewKey {
		missing = append(missing, broker.AdministratorAnnotation)
		o.render.Administrator = trust.Key{}
	}
	if len(missing) > 0 {
		g.progress().Warn("the annotations %s are not printed, because the keys are generated when deploying",
			words.List(missing))
	}
	objects, err := broker.Render(o.render)
	if err != nil {
		return err
	}
	format := o.format.Format()
	return cli.PrintDryRun(g.IOStreams, format,
		func() error { return cli.PrintObjects(g.Out, c.Scheme(), format, true, objects) })
}
