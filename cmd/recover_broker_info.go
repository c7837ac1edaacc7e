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
)

const recoverBrokerInfoLong = `Write a lost join file again, for the broker that the cluster of the context in use hosts.

The broker does not have the pre-shared key of the cables, but every joined cluster does.
The command asks the clusters of all contexts of the kubeconfig for it, or that of
--member-context, and checks it against the fingerprint that the broker has.

If you still have a join file with the key, use deploy-broker.`

const recoverBrokerInfoExample = `  # the broker is the cluster of context "hub"; find a joined cluster in the kubeconfig
  subctl recover-broker-info --context hub

  # ask the cluster of context "west" only
  subctl recover-broker-info --context hub --member-context west`

type recoverBrokerInfoOptions struct {
	invite inviteOptions
	member string // context
}

func newRecoverBrokerInfo(g *globals) *cobra.Command {
	o := &recoverBrokerInfoOptions{}
	c := &cobra.Command{
		Use:     "recover-broker-info",
		Short:   "Write a lost join file again",
		Long:    recoverBrokerInfoLong,
		Example: recoverBrokerInfoExample,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context(), g) },
	}
	o.invite.addFlags(c.Flags())
	c.Flags().StringVar(&o.member, "member-context", "", "context of a joined cluster (default: all are asked)")
	complete(c, "member-context", func(context.Context) ([]string, error) { return g.contexts() })
	return c
}

func (o *recoverBrokerInfoOptions) run(ctx context.Context, g *globals) error {
	if err := o.invite.check(); err != nil {
		return usageError(err)
	}
	cfg, err := g.restConfig()
	if err != nil {
		return err
	}
	report := g.progress()
	report.Step("looking for the broker at %s", cfg.Host)
	c, err := g.client(ctx)
	if err != nil {
		return err
	}
	state, err := broker.Look(ctx, c, o.invite.namespace)
	if err != nil {
		return err
	}
	if state.Broker == nil {
		return fmt.Errorf("there is no broker in namespace %s of the cluster at %s: choose another --context or --namespace, "+
			"or make one with subctl deploy-broker", o.invite.namespace, cfg.Host)
	}
	report.Done("found the broker; members: %d", len(state.Members))
	psk, from, err := o.find(ctx, g, state.Broker)
	if err != nil {
		return err
	}
	report.Done("found its pre-shared key in the cluster of context %q", from)
	return o.invite.write(ctx, g, c, cfg, psk)
}

// find asks joined clusters for the broker's pre-shared key. They are asked at
// once, since some may not answer.
func (o *recoverBrokerInfoOptions) find(ctx context.Context, g *globals, hub *v1alpha1.Broker) (broker.Secret, string, error) {
	contexts := []string{o.member}
	if o.member == "" {
		if hub.Annotations[broker.PSKFingerprintAnnotation] == "" {
			return nil, "", errors.New("the broker has no fingerprint of its pre-shared key to tell it by: name a cluster that is joined to it with --member-context")
		}
		var err error
		if contexts, err = g.contexts(); err != nil {
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
		cfg, err := g.restConfigFor(name)
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
	return nil, "", fmt.Errorf("no cluster has the broker's pre-shared key: use a kubeconfig with a context of a joined cluster\n%s",
		strings.Join(why, "\n"))
}

// ask returns the pre-shared key of a cluster if it is the broker's.
func ask(ctx context.Context, g *globals, cfg *rest.Config, hub *v1alpha1.Broker) (broker.Secret, error) {
	c, err := g.connect(ctx, cfg)
	if err != nil {
		return nil, noAnswer(cfg, "", err)
	}
	psk, err := broker.MemberPSK(ctx, c, submarinerv1.OperatorNamespace)
	if err != nil {
		return nil, err
	}
	if !broker.MayHavePSK(hub, psk) {
		return nil, errors.New("it is joined to another broker, or was joined before this one was made anew")
	}
	return psk, nil
}
