package cmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"subctl/internal/cli"
	"subctl/internal/printer"
	"subctl/sdewan/install"
)

const sdewanUninstallLong = `Remove everything that "subctl sdewan install" has created: the controller, its webhooks, its
rights and the kinds of the rules, and so all rules.

While there are rules, nothing is removed without --force, with which they are deleted, too. CNFs
themselves are Deployments of users: they stay, and their pods continue with the configuration that
they have, so that none becomes an open router. To take rules from CNFs, delete them with kubectl
before, while the controller runs.

Namespace sdewan-system stays if it contains objects of others.`

const sdewanUninstallExample = `  # show what would be removed, and remove it, with all rules
  subctl sdewan uninstall --dry-run
  subctl sdewan uninstall --force --yes`

type sdewanUninstall struct {
	*globals
	yes, dryRun, force bool
	timeout            time.Duration
	format             *printer.Flag
}

func newSdewanUninstall(g *globals) *cobra.Command {
	o := &sdewanUninstall{globals: g}
	c := &cobra.Command{
		Use:     "uninstall",
		Short:   "Remove the controller of CNFs and all rules",
		Long:    sdewanUninstallLong,
		Example: sdewanUninstallExample,
		Args:    g.noArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	f := c.Flags()
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the actions without performing them")
	f.BoolVar(&o.force, "force", false, "also delete the rules of users")
	cli.TimeLimit(c, &o.timeout, time.Minute,
		"time limit for ending the controller, for deleting the kinds, and for the namespace, each")
	o.format = cli.DryRunOutput(c, &o.dryRun, printer.Table, printer.JSON, printer.YAML)
	return c
}

func (o *sdewanUninstall) run(ctx context.Context) error {
	side, err := o.MemberSide(ctx)
	if err != nil {
		return err
	}
	if err := install.CheckRemovalRights(ctx, side.Client, side.URL); err != nil {
		return err
	}
	remains, err := install.ReadRemains(ctx, side.Client)
	if err != nil {
		return err
	}
	if remains.Empty() {
		o.progress().Done("SD-EWAN is not installed in the cluster at %s: there is nothing to remove", side.URL)
		return nil
	}
	rules := ""
	if len(remains.Rules) > 0 {
		rules = remains.CountRules()
	}
	if o.dryRun {
		if err := cli.PrintActions(o.IOStreams, o.format.Format(), remains.Lines(side.Scheme())); err != nil ||
			rules == "" ||
			o.force {
			return err
		}
		o.progress().Warn("there are %s: without --force, uninstall is refused", rules)
		return cli.Trouble()
	}
	if rules != "" && !o.force {
		return fmt.Errorf(
			"there are %s, which would be deleted with their kinds: nothing was changed; delete them first, or continue with --force",
			rules)
	}
	if !o.yes {
		question := fmt.Sprintf("Remove SD-EWAN from the cluster at %s?", side.URL)
		if rules != "" {
			question = fmt.Sprintf("Remove SD-EWAN, and %s, from the cluster at %s?", rules, side.URL)
		}
		if err := o.confirm(ctx, question); err != nil {
			return err
		}
	}
	u := &install.Removal{Client: side.Client, Report: o.progress(), Timeout: o.timeout}
	return u.Run(ctx, remains)
}
