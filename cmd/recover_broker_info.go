package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/internal/cli"
	"subctl/internal/connect"
)

const recoverBrokerInfoLong = `Write a lost join file again, for the broker on the cluster of the current context.

The broker does not have the pre-shared key of the cables, but every joined cluster does.
The command reads it from the cluster of --member-context, or searches the clusters of all
contexts of the kubeconfig. It compares the key with the fingerprint on the broker.

The administrator's signing key is only in join files: --signing-key-from names an older
general one, which may have expired. If all are lost, no cluster can join these clusters any
more: uninstall them, deploy the broker again, and join them.`

const recoverBrokerInfoExample = `  # the broker is on the cluster of context "hub"; find a joined cluster in the kubeconfig
  subctl recover-broker-info --context hub --signing-key-from broker-info.subm

  # read the key from the cluster of context "west"
  subctl recover-broker-info --context hub --signing-key-from broker-info.subm --member-context west`

type recoverBrokerInfoOptions struct {
	invite      inviteOptions
	member      string // context
	signingFrom string
}

func newRecoverBrokerInfo(g *globals) *cobra.Command {
	o := &recoverBrokerInfoOptions{}
	c := &cobra.Command{
		Use:     "recover-broker-info",
		Short:   "Write a lost join file again",
		Long:    recoverBrokerInfoLong,
		Example: recoverBrokerInfoExample,
		Args:    g.noArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return forAdministrators(o.run(c.Context(), g)) },
	}
	cli.Lacks(c, "contexts", "a broker is on one cluster: choose it with --context")
	cli.Lacks(c, "output", "its output is the join file, which --broker-info - prints")
	o.invite.addFlags(c.Flags())
	c.Flags().StringVar(&o.member, "member-context", "",
		"context of a joined cluster (default: all contexts are searched)")
	c.Flags().StringVar(&o.signingFrom, "signing-key-from", "",
		"join file with the administrator's signing key, - for stdin (default: the file that is replaced)")
	cli.Complete(c, "member-context", func(context.Context) ([]string, error) { return g.Contexts() })
	return c
}

func (o *recoverBrokerInfoOptions) run(ctx context.Context, g *globals) error {
	var from broker.KeySources
	mistakes := o.invite.check()
	var err error
	if from.SigningKeyFrom, err = optionalJoinFile(o.signingFrom, g.In); err != nil || mistakes != nil {
		return cli.UsageError(errors.Join(mistakes, err))
	}
	cfg, err := g.RestConfig()
	if err != nil {
		return err
	}
	report := g.progress()
	report.Step("looking for the broker at %s", cfg.Host)
	c, err := g.Client(ctx)
	if err != nil {
		return err
	}
	state, err := broker.Look(ctx, c, o.invite.namespace)
	if err != nil {
		return err
	}
	if state.Broker == nil {
		return fmt.Errorf(
			"there is no broker in namespace %s of the cluster at %s: choose another --context or --namespace, "+
				"or create one with subctl deploy-broker",
			o.invite.namespace,
			cfg.Host,
		)
	}
	report.Done("found the broker; members: %d", len(state.Members))
	keys, err := o.administrator(state, from, cfg)
	if err != nil {
		return err
	}
	psk, where, err := o.find(ctx, g, state.Broker)
	if err != nil {
		return err
	}
	keys.PSK = psk
	o.invite.warnOfAddress(report, cfg)
	report.Done("found its pre-shared key in the cluster of context %q; the administrator's key is %s", where,
		keys.AdministratorOrigin)
	discard, err := o.invite.create()
	if err != nil {
		return err
	}
	defer discard()
	return o.invite.write(ctx, g, c, cfg, keys)
}

// administrator returns the administrator's key, which only join files contain.
func (o *recoverBrokerInfoOptions) administrator(
	state broker.State,
	from broker.KeySources,
	cfg *rest.Config,
) (broker.Keys, error) {
	o.invite.addSources(&from, cfg)
	key, origin, err := state.ChooseAdministrator(from)
	if err == nil && key.IsZero() {
		err = errors.New(
			"no cluster has joined, and there is no join file of this broker here: run subctl deploy-broker, which makes new keys")
	}
	return broker.Keys{Administrator: key, AdministratorOrigin: origin}, err
}

// find searches joined clusters for the broker's pre-shared key. It asks them all at the same
// time, since some may not answer.
func (o *recoverBrokerInfoOptions) find(
	ctx context.Context,
	g *globals,
	hub *v1alpha1.Broker,
) (broker.Secret, string, error) {
	contexts := []string{o.member}
	if o.member == "" {
		if hub.Annotations[broker.PSKFingerprintAnnotation] == "" {
			return nil, "", errors.New(
				"the broker has no fingerprint of its pre-shared key: specify a cluster that has joined it with --member-context")
		}
		var err error
		if contexts, err = g.Contexts(); err != nil {
			return nil, "", err
		}
	}
	type answer struct {
		psk broker.Secret
		err error
	}
	answers := make([]chan answer, len(contexts))
	for i, name := range contexts {
		answers[i] = make(chan answer, 1)
		cfg, err := g.RestConfigFor(name)
		if err != nil {
			if name == o.member {
				return nil, "", err
			}
			answers[i] <- answer{err: err}
			continue
		}
		go func() {
			psk, err := ask(ctx, g, cfg, hub)
			answers[i] <- answer{psk, err}
		}()
	}
	var why []string
	for i, name := range contexts {
		a := <-answers[i]
		if a.err == nil {
			return a.psk, name, nil
		}
		why = append(why, fmt.Sprintf("%s: %v", name, a.err))
	}
	return nil, "", fmt.Errorf(
		"no cluster has the broker's pre-shared key: use a kubeconfig with a context of a joined cluster\n%s",
		strings.Join(why, "\n"))
}

// ask returns the pre-shared key of a cluster if it is the key of the broker.
func ask(ctx context.Context, g *globals, cfg *rest.Config, hub *v1alpha1.Broker) (broker.Secret, error) {
	c, err := g.Connect(ctx, cfg)
	if err != nil {
		return nil, connect.NoAnswer(cfg, "", err)
	}
	psk, err := broker.MemberPSK(ctx, c, submarinerv1.OperatorNamespace)
	if err != nil {
		return nil, err
	}
	if !broker.MayHavePSK(hub, psk) {
		return nil, errors.New("it has joined another broker, or joined before this broker was deployed again")
	}
	return psk, nil
}
