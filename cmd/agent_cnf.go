package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"subctl/internal/cli"
	"subctl/sdewan"
	"subctl/sdewan/cnf/agent"
	"subctl/sdewan/cnf/server"
)

// cnfAgent are the flags of "subctl agent cnf".
type cnfAgent struct {
	*globals
	kernel func() (agent.Kernel, error)

	networksFile, uplinksFile, stateFile string
	passwordFile, cert, key              string
	https, http                          string
	open, flowTable                      bool
	logFormat, logLevel                  string
}

// newAgentCNF returns the command that runs in the pods of a CNF: its REST API, and the loop that
// makes the pod's network namespace hold what the API has received. It contacts no API server.
func newAgentCNF(g *globals) *cobra.Command {
	o := &cnfAgent{globals: g, kernel: newCNFKernel}
	c := &cobra.Command{
		Use:   "cnf",
		Short: "Run a CNF",
		Long:  "Run a CNF.\n\nA new CNF forwards nothing until a service is started, unless --open is set.",
		Args:  cli.NoArguments,
		RunE:  func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	cli.ContactsNoCluster(c, "")
	o.addFlags(c)
	return c
}

func (o *cnfAgent) addFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.networksFile, "networks-file", "", "file with the pod's annotation "+sdewan.NetworksAnnotation)
	f.StringVar(&o.uplinksFile, "uplinks-file", "", "file with the pod's annotation "+sdewan.UplinksAnnotation)
	f.StringVar(&o.stateFile, "state-file", "",
		"file that keeps what the REST API has received; without it, a restart forgets it, as on OpenWrt")
	f.BoolVar(&o.open, "open", false,
		"forward before a service has been started, as OpenWrt does: for controllers that start none")
	// is ignored: Deployments that an earlier subctl rendered may have it
	f.BoolVar(&o.flowTable, "flow-table", false, "")
	_ = f.MarkHidden("flow-table")
	f.StringVar(&o.passwordFile, "password-file", "", "file with the password of root (required)")
	f.StringVar(&o.cert, "tls-cert", "", "file with the certificate of the REST API (required)")
	f.StringVar(&o.key, "tls-key", "", "file with the key of the certificate (required)")
	f.StringVar(&o.https, "https", ":443", "address of the REST API")
	f.StringVar(&o.http, "http", ":80", "address of the readiness probe; empty for none")
	f.StringVar(&o.logFormat, "log-format", "json", "json or text")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
}

func (o *cnfAgent) run(ctx context.Context) error {
	var level slog.LevelVar
	log, err := newLogger(o.ErrOut, o.logFormat, o.logLevel, &level)
	if o.flowTable && err == nil {
		log.Warn(
			"--flow-table has no effect: CNFs have no flow table any more. Remove the flag from the arguments of the container")
	}
	errs := []error{err}
	for _, f := range []struct{ name, value string }{
		{"password-file", o.passwordFile},
		{"tls-cert", o.cert},
		{"tls-key", o.key},
	} {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("--%s is missing", f.name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return cli.UsageError(err)
	}
	kernel, err := o.kernel() // before files are read, which may fail: the pod must not forward without rules
	if err != nil {
		return err
	}
	networks, err := readAnnotation("networks-file", o.networksFile)
	if err != nil {
		return err
	}
	attached, err := sdewan.ParseAttachments(string(networks))
	if err != nil {
		log.Warn("a network is left out", "err", err) // the others work
	}
	text, err := readAnnotation("uplinks-file", o.uplinksFile)
	if err != nil {
		return err
	}
	uplinks, err := sdewan.ParseUplinks(text)
	if err != nil {
		return err
	}
	store, err := server.OpenStore(o.stateFile)
	if err != nil {
		return err
	}
	for _, object := range store.LeftOut() {
		log.Warn(
			"an object of --state-file is left out: correct its rule, or create it again. Nothing is forwarded until a service is started, which the controller does",
			"object", object, "before", store.LeftOutCopy())
	}
	if o.open {
		if err := store.EndAwaiting(); err != nil {
			return fmt.Errorf("writing --state-file %s: %w", o.stateFile, err)
		}
	}
	listen := server.Listeners{Cert: o.cert, Key: o.key}
	if listen.HTTPS, err = listenCNF(ctx, o.https); err != nil {
		return fmt.Errorf("listening for the REST API: %w", err)
	}
	defer listen.HTTPS.Close()
	at := []netip.AddrPort{addressOf(listen.HTTPS)}
	if o.http != "" {
		if listen.HTTP, err = listenCNF(ctx, o.http); err != nil {
			return fmt.Errorf("listening for the readiness probe: %w", err)
		}
		defer listen.HTTP.Close()
		at = append(at, addressOf(listen.HTTP))
	}
	loop := agent.New(
		agent.Options{Attachments: attached, Uplinks: uplinks, API: at, Config: store.Config, Kernel: kernel, Log: log})
	api := server.New(server.Options{
		Store:    store,
		Password: server.PasswordFile(o.passwordFile),
		Devices:  loop.Devices,
		Changed:  loop.Changed,
		Status:   loop.Status,
		Ready:    loop.Ready,
		Log:      log,
	})
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return loop.Run(ctx) })
	both.Go(func() error { return api.Run(ctx, listen) })
	return both.Wait()
}

// addressOf returns where a listener listens.
func addressOf(l net.Listener) netip.AddrPort {
	at, _ := netip.ParseAddrPort(l.Addr().String()) // always valid
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// maxAnnotationFile is the maximum number of bytes that are read of a file with an annotation: more
// than an object of Kubernetes can have.
const maxAnnotationFile = 1 << 20

// readAnnotation reads the file of a flag, with the text of an annotation. No name is no text.
func readAnnotation(flag, name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading --%s: %w", flag, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxAnnotationFile))
	if err != nil {
		return nil, fmt.Errorf("reading --%s: %w", flag, err)
	}
	return text, nil
}
