package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/internal/cli"
	"subctl/internal/connect"
	"subctl/internal/progress"
	"subctl/internal/proxy"
)

// inviteOptions are the common options of deploy-broker and recover-broker-info: the broker,
// and the file to write.
type inviteOptions struct {
	namespace string
	url       string
	name      string // in the certificate
	ttl       time.Duration
	file      string
	created   *broker.NewFile // where the join file will be written; nil: stdout
}

func (o *inviteOptions) addFlags(f *pflag.FlagSet) {
	f.StringVarP(&o.namespace, "namespace", "n", submarinerv1.BrokerNamespace, "namespace of the broker")
	f.StringVar(&o.url, "broker-url", "",
		"address of the broker's API server for the clusters, https://host:port (default: the address in the kubeconfig)")
	o.addNameFlag(f, "of the kubeconfig if its address is used")
	f.DurationVar(&o.ttl, "token-ttl", 24*time.Hour, "lifetime of the join file")
	f.StringVar(&o.file, "broker-info", broker.JoinFileName,
		"join file to write, - for stdout; an existing file is renamed")
}

// addNameFlag declares the flag of the name in the broker's certificate.
func (o *inviteOptions) addNameFlag(f *pflag.FlagSet, otherwise string) {
	f.StringVar(&o.name, "broker-tls-server-name", "", "name in the certificate of the broker's API server, if it is "+
		"not the host in the address (default: the name "+otherwise+")")
}

// serverName returns the name in the certificate of the broker's API server; empty: the host in the
// address.
func (o *inviteOptions) serverName(cfg *rest.Config) string {
	if o.name == "" && o.url == "" {
		return cfg.ServerName
	}
	return o.name
}

func (o *inviteOptions) check() error { return o.checkWith("--token-ttl", "--broker-info") }

// checkWith returns all mistakes in the options, where ttl and file are the flags of the
// lifetime and the file.
func (o *inviteOptions) checkWith(ttl, file string) error {
	errs := []error{checkNamespace(o.namespace)}
	if o.url != "" {
		address, err := broker.ParseURL(o.url)
		if err != nil {
			errs = append(errs, fmt.Errorf("--broker-url %w", err))
		}
		o.url = address
	}
	if o.ttl < broker.MinTokenTTL || o.ttl > broker.MaxTokenTTL {
		errs = append(errs,
			fmt.Errorf("%s %s is out of range: use %s to %s", ttl, o.ttl, broker.MinTokenTTL, broker.MaxTokenTTL))
	}
	if o.file != cli.StdStream {
		if err := broker.CheckWritable(o.file); err != nil {
			errs = append(errs, cli.FileError(fmt.Errorf("%s %w", file, err)))
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

// forAdministrators returns the error of a command that needs an administrator's rights, with the
// remedy where the user lacks a right.
func forAdministrators(err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("%w: use a context with an administrator's rights (docs/permissions.md)", err)
}

// forReaders adds the remedy to the error of a command that only reads a broker if the user lacks
// rights.
func forReaders(err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("%w: use a context with the rights to read the broker (docs/permissions.md)", err)
}

// readBroker reads the Broker in a namespace.
func readBroker(ctx context.Context, c client.Client, ns string) (*v1alpha1.Broker, error) {
	hub := &v1alpha1.Broker{}
	err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: v1alpha1.BrokerName}, hub)
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return nil, fmt.Errorf(
			"this cluster has no broker in namespace %s: specify the cluster of the broker with --context, and its namespace with --namespace",
			ns)
	case err != nil:
		return nil, fmt.Errorf("reading Broker %s/%s: %w", ns, v1alpha1.BrokerName, err)
	}
	return hub, nil
}

// create takes the place of the join file, before anything is created on a broker. The caller must
// call what it returns in the end.
func (o *inviteOptions) create() (discard func(), err error) {
	if o.file == cli.StdStream {
		return func() {}, nil
	}
	if o.created, err = broker.CreateFile(o.file); err != nil {
		return nil, fmt.Errorf("%w (nothing was changed)", err)
	}
	return o.created.Discard, nil
}

// write writes the join file of a deployed broker.
func (o *inviteOptions) write(
	ctx context.Context,
	g *globals,
	c client.Client,
	cfg *rest.Config,
	keys broker.Keys,
) error {
	hub, err := readBroker(ctx, c, o.namespace)
	if err != nil {
		return err
	}
	trusted := rest.CopyConfig(cfg)
	if err := rest.LoadTLSFiles(trusted); err != nil {
		return fmt.Errorf("reading the certificate authority of the kubeconfig: %w", err)
	}
	file, err := broker.Invite(ctx, c, hub, broker.Invitation{
		URL: o.address(cfg), ServerName: o.serverName(cfg), CA: trusted.CAData, PSK: keys.PSK,
		Administrator: keys.Administrator, TTL: o.ttl,
	})
	if err != nil {
		return err
	}
	return o.report(ctx, g, file)
}

// report writes a join file, and reports where it is and until when it can be used.
func (o *inviteOptions) report(ctx context.Context, g *globals, file *broker.JoinFile) error {
	kept, err := o.writeFile(g, file)
	if err != nil {
		return fmt.Errorf("%w: the broker has created what the file needs; run the same command again", err)
	}
	report := g.progress()
	if kept != "" {
		report.Done("renamed the existing join file to %s", kept)
	}
	o.try(ctx, g, file)
	expires := "never expires"
	if at, ok := file.Expires(); ok {
		expires = "clusters can join with it until " + at.UTC().Format(time.RFC3339)
		if i, err := file.Invited(); err == nil && i != nil {
			expires = fmt.Sprintf("cluster %s can join with it until %s", i.Cluster, at.UTC().Format(time.RFC3339))
		}
		if now := g.Now(); at.Sub(now) < o.ttl-time.Minute {
			report.Warn("the API server limits the lifetime of tokens to %s", at.Sub(now).Round(time.Minute))
		}
	}
	report.Done("wrote %s: %s", o.fileName(), expires)
	return nil
}

// try warns if clusters cannot join with a file: if, seen from here, the API server at its address
// does not have a certificate that the file trusts, or does not accept the token of the file.
func (o *inviteOptions) try(ctx context.Context, g *globals, file *broker.JoinFile) {
	used := *file
	used.Proxy = g.BrokerProxy(file.BrokerURL)
	_, err := g.Connect(ctx, used.RESTConfig(false))
	if err == nil || ctx.Err() != nil {
		return
	}
	if connect.IsUnreachable(err) {
		g.progress().Warn("the broker's address %s could not be tried from here%s: %v", file.BrokerURL,
			proxy.Through(err), connect.Cause(err))
		return
	}
	g.progress().Warn("clusters cannot join with this file: %v", connect.NoBroker(file.BrokerURL, err))
}

// warnOfAddress warns of an address that clusters may not be able to use.
func (o *inviteOptions) warnOfAddress(report *progress.Reporter, cfg *rest.Config) {
	for _, w := range broker.AddressWarnings(o.address(cfg)) {
		report.Warn("%s", w)
	}
}

// addSources adds the file that will be replaced, and the broker's address, to the sources of
// keys.
func (o *inviteOptions) addSources(s *broker.KeySources, cfg *rest.Config) {
	s.URL = o.address(cfg)
	s.Namespace = o.namespace
	if o.file == cli.StdStream {
		return
	}
	if s.Existing, s.Reason = broker.ReadOldJoinFile(o.file, nil); errors.Is(s.Reason, fs.ErrNotExist) {
		s.Reason = nil
	}
}

// optionalJoinFile reads a join file for its keys; it returns nil if no file is named.
func optionalJoinFile(path string, stdin io.Reader) (*broker.JoinFile, error) {
	if path == "" {
		return nil, nil
	}
	file, err := broker.ReadOldJoinFile(path, stdin)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: specify the path of an existing join file, from which the key is read", err)
	}
	return file, cli.FileError(err)
}

// fileName returns the name of the join file, for messages.
func (o *inviteOptions) fileName() string {
	if o.file == cli.StdStream {
		return "the join file to stdout"
	}
	return o.file
}

// writeFile writes a join file to stdout or to the file. It returns the new name of the file
// that it replaces.
func (o *inviteOptions) writeFile(g *globals, file *broker.JoinFile) (kept string, err error) {
	if o.created != nil {
		return o.created.Write(file, g.Now())
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
