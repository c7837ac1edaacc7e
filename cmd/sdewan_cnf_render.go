package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/cli"
	"subctl/internal/kube"
	"subctl/internal/printer"
	"subctl/sdewan"
	"subctl/sdewan/install"
)

const cnfRenderLong = `Print the objects of a CNF, to apply with kubectl, or to edit: a Deployment that runs the CNF
of subctl on plain Linux, a Secret with the password of its REST API, and a Secret with its
certificate.

--networks lists the networks to which the pods are attached, each with the pod's address unless
the network plugin chooses one: their devices are net0, net1 and so on. Rules refer to networks by
these names. With Multus, each needs a NetworkAttachmentDefinition of its name in the namespace.

--uplinks lists the networks that lead to the Internet, with the address of their router, and
--track hosts by which the CNF finds that an uplink does not work: it is offline after --down
rounds in which they did not answer, and online again after --up rounds in which they did.

--firewall adds zones, and rules: hosts of the other networks reach the Internet with the address
of the uplink, and from the Internet nobody reaches them or the CNF, except by ping and IPsec.
Without it, the CNF is an open router until there are zones.

When the cluster loses a node, the CNF is started on another one 10 s after that. --priority-class
lets it take the place of other pods there. Several pods are spread over nodes, and get a
PodDisruptionBudget: nodes are drained one after the other.

The password and the certificate are new each time: to render a CNF again, keep its Secrets with
--account-secret and --cert-secret. No cluster is contacted.`

const cnfRenderExample = `  # a site with a LAN and two uplinks
  subctl sdewan cnf render edge --purpose cnf-1 --networks lan=192.168.1.1/24,wan1=198.51.100.10/24,wan2=203.0.113.10/24 --uplinks wan1=198.51.100.1,wan2=203.0.113.1 --track wan1=192.0.2.80,wan2=192.0.2.80 --firewall

  # two pods whose addresses the network plugin chooses
  subctl sdewan cnf render edge --purpose cnf-1 --networks lan,wan1 --replicas 2 -n branch`

type cnfRender struct {
	*globals
	cnf                       install.CNF
	networks, uplinks, tracks []string
	timing                    sdewan.Uplink
	passwordFile              string
	firewall                  bool
	nodes                     map[string]string
	format                    *printer.Flag
}

func newCNFRender(g *globals) *cobra.Command {
	o := &cnfRender{globals: g}
	c := &cobra.Command{
		Use:     "render NAME",
		Short:   "Print a Deployment that runs a CNF, to apply or edit",
		Long:    cnfRenderLong,
		Example: cnfRenderExample,
		Args:    oneArgument("Deployment", &o.cnf.Name),
		RunE:    func(*cobra.Command, []string) error { return o.run() },
	}
	cli.ContactsNoCluster(c, "")
	c.ValidArgsFunction = cobra.NoFileCompletions
	f := c.Flags()
	f.StringVarP(&o.cnf.Namespace, "namespace", "n", "default", "namespace of the CNF")
	f.StringVar(&o.cnf.Purpose, "purpose", "",
		"value of the label sdewanPurpose, by which rules choose the CNF (required)")
	f.StringSliceVar(&o.networks, "networks", nil, "networks of the pods: NAME or NAME=ADDRESS/BITS (required)")
	f.StringSliceVar(&o.uplinks, "uplinks", nil, "networks that lead to the Internet: NETWORK=GATEWAY")
	f.StringSliceVar(&o.tracks, "track", nil, "hosts that the CNF pings through an uplink: NETWORK=ADDRESS")
	f.IntVar(&o.timing.Interval, "interval", 0, "seconds between two rounds of pings (default 10)")
	f.IntVar(&o.timing.Count, "ping-count", 0, "pings of each tracked address in a round (default 1)")
	f.IntVar(&o.timing.Timeout, "ping-timeout", 0, "seconds until a ping has failed (default 4)")
	f.IntVar(&o.timing.Down, "down", 0, "failed rounds until an uplink is offline (default 5)")
	f.IntVar(&o.timing.Up, "up", 0, "succeeded rounds until an uplink is online again (default 5)")
	f.BoolVar(&o.firewall, "firewall", false,
		"add zones that let nobody in from uplinks, and hosts of other networks out")
	f.Int32Var(&o.cnf.Replicas, "replicas", 1, "pods of the CNF")
	f.StringVar(&o.cnf.Image, "image", install.DefaultImage(),
		"image of the CNF (default: the image of this version of subctl)")
	f.StringVar(&o.cnf.Plugin, "plugin", install.Multus, "network plugin: multus or ovn4nfv")
	f.StringToStringVar(&o.nodes, "node-selector", nil, "labels of the nodes that are connected to the networks")
	f.StringVar(&o.cnf.PriorityClass, "priority-class", "",
		"PriorityClass of the pods, so that a full node makes room for them")
	f.StringVar(&o.passwordFile, "password-file", "",
		"file with the password of the REST API, or - for stdin (default: a new, random password)")
	f.StringVar(&o.cnf.AccountSecret, "account-secret", "",
		"existing Secret with the key password, instead of a new one")
	f.StringVar(&o.cnf.CertSecret, "cert-secret", "",
		"existing Secret with the keys ca.crt, tls.crt and tls.key, instead of a new one")
	cli.Complete(c, "plugin",
		func(context.Context) ([]string, error) { return []string{install.Multus, install.OVN4NFV}, nil })
	f.Lookup("image").DefValue = "" // the usage has it
	cli.Before(c, func() error {
		if o.passwordFile != "" && o.cnf.AccountSecret != "" {
			return errors.New("--password-file and --account-secret both choose the password: set only one of them")
		}
		return o.checkTiming(c)
	})
	o.format = cli.Output(c, printer.YAML, printer.JSON)
	return c
}

// checkTiming checks the flags that say when an uplink is offline.
func (o *cnfRender) checkTiming(c *cobra.Command) error {
	var errs []error
	for _, f := range []struct {
		name  string
		value int
	}{
		{"interval", o.timing.Interval},
		{"ping-count", o.timing.Count},
		{"ping-timeout", o.timing.Timeout},
		{"down", o.timing.Down},
		{"up", o.timing.Up},
	} {
		switch {
		case !c.Flags().Changed(f.name):
		case f.value < 1 || f.value > sdewan.MaxUplinkNumber:
			errs = append(errs, fmt.Errorf("--%s %d must be from 1 to %d", f.name, f.value, sdewan.MaxUplinkNumber))
		case len(o.tracks) == 0:
			errs = append(errs, fmt.Errorf("--%s has no effect without --track, the hosts that the CNF pings", f.name))
		}
	}
	return errors.Join(errs...)
}

// maxPassword is the longest password, in bytes, that is read from a file.
const maxPassword = 1024

func (o *cnfRender) run() error {
	newAccount := o.cnf.AccountSecret == ""
	newCert := o.cnf.CertSecret == ""
	o.cnf.NodeSelector = o.nodes
	var errs [3]error
	errs[0] = o.nameSecrets()
	o.cnf.Networks, errs[1] = install.ParseNetworks(o.networks)
	o.cnf.Uplinks, errs[2] = install.ParseUplinks(o.uplinks, o.tracks, o.timing)
	err := errors.Join(errs[:]...)
	var rules []client.Object
	if err == nil {
		err = o.cnf.Validate()
	}
	if err == nil && o.firewall {
		rules, err = o.cnf.Firewall()
	}
	if err != nil {
		return cli.UsageError(err)
	}
	deployment, err := o.cnf.Deployment()
	if err != nil {
		return err
	}
	objects := []client.Object{}
	if newAccount {
		password, err := o.password()
		if err != nil {
			return err
		}
		objects = append(objects, o.cnf.Account(password))
	}
	if newCert {
		ca, cert, key, err := install.NewCertificate(o.cnf.Namespace, o.Now())
		if err != nil {
			return err
		}
		objects = append(objects, o.cnf.Certificate(ca, cert, key))
	}
	scheme, err := kube.NewScheme()
	if err != nil {
		return err
	}
	objects = append(append(objects, rules...), deployment)
	if budget := o.cnf.Disruptions(); budget != nil {
		objects = append(objects, budget)
	}
	return cli.PrintObjects(o.Out, scheme, o.format.Format(), false, objects)
}

// nameSecrets names the new Secrets after the CNF.
func (o *cnfRender) nameSecrets() error {
	for _, s := range []struct {
		name   *string
		suffix string
	}{{&o.cnf.AccountSecret, "-account"}, {&o.cnf.CertSecret, "-cert"}} {
		if *s.name != "" {
			continue
		}
		*s.name = o.cnf.Name + s.suffix
		if len(o.cnf.Name) <= validation.DNS1123LabelMaxLength && len(*s.name) > validation.DNS1123LabelMaxLength {
			return fmt.Errorf(
				"name %q is too long for the Secret %s: choose a shorter name, of at most %d characters, or set --account-secret and --cert-secret",
				o.cnf.Name, *s.name, validation.DNS1123LabelMaxLength-len(s.suffix))
		}
	}
	return nil
}

// password reads the password, or makes one.
func (o *cnfRender) password() (string, error) {
	if o.passwordFile == "" {
		return install.NewPassword(), nil
	}
	var text []byte
	var err error
	if o.passwordFile == cli.StdStream {
		text, err = io.ReadAll(io.LimitReader(o.In, maxPassword+1))
	} else {
		text, err = os.ReadFile(o.passwordFile)
	}
	if err != nil {
		return "", fmt.Errorf("reading --password-file: %w", err)
	}
	password := string(bytes.TrimRight(text, "\r\n"))
	if password == "" || len(password) > maxPassword || strings.ContainsAny(password, "\r\n\x00") {
		return "", fmt.Errorf("--password-file %s must contain one line with a password of 1 to %d bytes",
			o.passwordFile, maxPassword)
	}
	return password, nil
}
