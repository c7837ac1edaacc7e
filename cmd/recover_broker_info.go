package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
)

const recoverBrokerInfoLong = `Write a lost join file again, for the broker on the cluster of the current context.

The broker does not have the pre-shared key of the cables, but every joined cluster does.
The command reads it from the cluster of --member-context, or searches the clusters of all
contexts of the kubeconfig. It compares the key with the fingerprint on the broker.

If you still have a join file with the key, use deploy-broker instead.`

const recoverBrokerInfoExample = `  # the broker is on the cluster of context "hub"; find a joined cluster in the kubeconfig
  subctl recover-broker-info --context hub

  # read the key from the cluster of context "west"
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
		Args:    noArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context(), g) },
	}
	o.invite.addFlags(c.Flags())
	c.Flags().StringVar(&o.member, "member-context", "", "context of a joined cluster (default: all contexts are searched)")
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
			"or create one with subctl deploy-broker", o.invite.namespace, cfg.Host)
	}
	report.Done("found the broker; members: %d", len(state.Members))
	psk, from, err := o.find(ctx, g, state.Broker)
	if err != nil {
		return err
	}
	report.Done("found its pre-shared key in the cluster of context %q", from)
	return o.invite.write(ctx, g, c, cfg, psk)
}

// find searches joined clusters for the broker's pre-shared key. It asks them all at the same
// time, since some may not answer.
func (o *recoverBrokerInfoOptions) find(ctx context.Context, g *globals, hub *v1alpha1.Broker) (broker.Secret, string, error) {
	contexts := []string{o.member}
	if o.member == "" {
		if hub.Annotations[broker.PSKFingerprintAnnotation] == "" {
			return nil, "", errors.New("the broker has no fingerprint of its pre-shared key: specify a cluster that has joined it with --member-context")
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

// ask returns the pre-shared key of a cluster if it is the key of the broker.
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
		return nil, errors.New("it has joined another broker, or joined before this broker was deployed again")
	}
	return psk, nil
}

// inviteOptions are the common options of deploy-broker and recover-broker-info: the broker,
// and the file to write.
type inviteOptions struct {
	namespace string
	url       string
	ttl       time.Duration
	file      string
}

func (o *inviteOptions) addFlags(f *pflag.FlagSet) {
	f.StringVarP(&o.namespace, "namespace", "n", submarinerv1.BrokerNamespace, "namespace of the broker")
	f.StringVar(&o.url, "broker-url", "", "address of the broker's API server for the clusters, https://host:port (default: the address in the kubeconfig)")
	f.DurationVar(&o.ttl, "token-ttl", 24*time.Hour, "lifetime of the join file")
	f.StringVar(&o.file, "broker-info", broker.JoinFileName, "join file to write, - for stdout; an existing file is renamed")
}

func (o *inviteOptions) check() error {
	var errs []error
	if len(validation.IsDNS1123Label(o.namespace)) > 0 {
		errs = append(errs, fmt.Errorf("--namespace %q is not a valid namespace: use lower case letters, digits and '-'", o.namespace))
	}
	if o.url != "" {
		address, err := broker.ParseURL(o.url)
		if err != nil {
			errs = append(errs, fmt.Errorf("--broker-url %w", err))
		}
		o.url = address
	}
	if o.ttl < broker.MinTokenTTL || o.ttl > broker.MaxTokenTTL {
		errs = append(errs, fmt.Errorf("--token-ttl %s is out of range: use %s to %s", o.ttl, broker.MinTokenTTL, broker.MaxTokenTTL))
	}
	if o.file != stdStream {
		if err := broker.CheckWritable(o.file); err != nil {
			errs = append(errs, fmt.Errorf("--broker-info %w", err))
		}
	}
	return errors.Join(errs...)
}

// address returns the address of the broker for the clusters.
func (o *inviteOptions) address(cfg *rest.Config) string {
	if o.url != "" || strings.Contains(cfg.Host, "://") {
		return strings.TrimSuffix(cmp.Or(o.url, cfg.Host), "/")
	}
	return "https://" + cfg.Host
}

// write writes the join file of a deployed broker.
func (o *inviteOptions) write(ctx context.Context, g *globals, c client.Client, cfg *rest.Config, psk broker.Secret) error {
	hub := &v1alpha1.Broker{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: v1alpha1.BrokerName}, hub); err != nil {
		return fmt.Errorf("reading Broker %s/%s: %w", o.namespace, v1alpha1.BrokerName, err)
	}
	trusted := rest.CopyConfig(cfg)
	if err := rest.LoadTLSFiles(trusted); err != nil {
		return fmt.Errorf("reading the certificate authority of the kubeconfig: %w", err)
	}
	file, err := broker.Invite(ctx, c, hub, broker.Invitation{URL: o.address(cfg), CA: trusted.CAData, PSK: psk, TTL: o.ttl})
	if err != nil {
		return err
	}
	kept, err := o.writeFile(g, file)
	if err != nil {
		return err
	}
	report := g.progress()
	if kept != "" {
		report.Done("renamed the existing join file to %s", kept)
	}
	if u, err := url.Parse(file.BrokerURL); err == nil && onlyHere(u.Hostname()) {
		report.Warn("the broker's address %s can be reached only from its own machine: specify another address with --broker-url", file.BrokerURL)
	}
	expires := "never expires"
	if at, ok := file.Expires(); ok {
		expires = "clusters can join with it until " + at.Format(time.RFC3339)
		if now := time.Now(); at.Sub(now) < o.ttl-time.Minute {
			report.Warn("the API server limits the lifetime of tokens to %s", at.Sub(now).Round(time.Minute))
		}
	}
	report.Done("wrote %s: %s", o.name(), expires)
	return nil
}

// name returns the name of the join file, for messages.
func (o *inviteOptions) name() string {
	if o.file == stdStream {
		return "the join file to stdout"
	}
	return o.file
}

// writeFile writes a join file to stdout or to the file. It returns the new name of the file
// that it replaces.
func (o *inviteOptions) writeFile(g *globals, file *broker.JoinFile) (kept string, err error) {
	if o.file != stdStream {
		return file.WriteFile(o.file, g.now())
	}
	content, err := file.Encode()
	if err == nil {
		_, err = fmt.Fprintf(g.Out, "%s\n", content)
	}
	if err != nil {
		return "", fmt.Errorf("writing join file: %w", err)
	}
	return "", nil
}

// onlyHere reports whether host is an address of the local machine.
func onlyHere(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && (ip.IsLoopback() || ip.IsUnspecified())
}
