package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	sched "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"subctl/lab/pki"
)

// controlPlane is etcd, kube-apiserver, kube-controller-manager and kube-scheduler in one process.
// One process per cluster takes a third of the memory of four, and there is only one thing to
// start, wait for and kill.
type controlPlane struct {
	name, dir          string
	bind, advertise    string
	port, etcdPort     int
	services, pods     string
	domain             string
	scheduler          bool // without nodes there is nothing to schedule
	diesWithItsParent  bool
	removesItsData     bool
	verbosity          int
	reachable, loopURL string // where others, and where its own parts, find the API server
}

func runControlPlane(args []string) error {
	var c controlPlane
	fs := pflag.NewFlagSet("control-plane", pflag.ExitOnError)
	fs.StringVar(&c.name, "name", "cluster1", "name of the cluster, in kubeconfigs")
	fs.StringVar(&c.dir, "dir", "", "directory for keys, kubeconfigs and etcd")
	fs.StringVar(&c.bind, "bind", "127.0.0.1", "address the API server listens on")
	fs.StringVar(&c.advertise, "advertise", "127.0.0.1", "address of the API server in kubeconfigs and certificates")
	fs.IntVar(&c.port, "port", 0, "port of the API server; 0 takes a free one")
	fs.IntVar(&c.etcdPort, "etcd-port", 0, "port of etcd on 127.0.0.1 (its peer port is the next); 0 takes free ones")
	fs.StringVar(&c.services, "service-cidr", "10.96.0.0/16", "addresses of Services")
	fs.StringVar(&c.pods, "pod-cidr", "10.244.0.0/16", "addresses of pods")
	fs.StringVar(&c.domain, "domain", "cluster.local", "cluster DNS domain")
	fs.BoolVar(&c.scheduler, "scheduler", true, "run the scheduler as well")
	fs.BoolVar(&c.diesWithItsParent, "dies-with-its-parent", false,
		"stop when the process that started this one is gone")
	fs.BoolVar(&c.removesItsData, "removes-its-data", false, "remove what was written to the directory when stopped")
	fs.IntVarP(&c.verbosity, "v", "v", 1, "verbosity of Kubernetes' own log")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if c.dir == "" {
		return errors.New("--dir says where keys and data go; it is missing")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if c.diesWithItsParent {
		var cancel context.CancelFunc
		ctx, cancel = withParent(ctx)
		defer cancel()
	}
	if c.removesItsData {
		defer c.remove()
	}
	if err := c.run(ctx); ctx.Err() == nil {
		return err
	}
	return nil // stopped, whatever that broke off
}

func (c *controlPlane) run(ctx context.Context) error {
	started := time.Now()
	stage := func(name string) { fmt.Printf("%6.2fs %s\n", time.Since(started).Seconds(), name) }

	// The API server is handed a listener, so that with port 0 nobody else can take the port in
	// between.
	listener, err := net.Listen("tcp", net.JoinHostPort(c.bind, strconv.Itoa(c.port)))
	if err != nil {
		return fmt.Errorf("listening for the API server: %w", err)
	}
	c.port = listener.Addr().(*net.TCPAddr).Port
	c.reachable = "https://" + net.JoinHostPort(c.advertise, strconv.Itoa(c.port))
	c.loopURL = "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port))
	keys, err := c.ensureKeys()
	if err != nil {
		return err
	}
	stage("keys")

	endpoint, stopEtcd, err := c.startEtcd(ctx)
	if err != nil {
		return err
	}
	defer stopEtcd()
	stage("etcd")

	// Every component's flags first: the feature gates they share can be set only once.
	opts, err := c.options(endpoint)
	if err != nil {
		return err
	}
	opts.apiserver.SecureServing.Listener = listener
	completed, err := opts.apiserver.Complete(ctx)
	if err != nil {
		return fmt.Errorf("completing the API server's options: %w", err)
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return fmt.Errorf("checking the API server's options: %w", utilerrors.NewAggregate(errs))
	}
	ended := make(chan error, 3)
	go func() { ended <- endedBecause("the API server", apiserver.Run(ctx, completed)) }()
	if err := waitReady(ctx, c.loopURL, keys, ended); err != nil {
		return err
	}
	stage("API server")

	go func() {
		config, err := opts.controllers.Config(ctx, kcm.KnownControllers(), kcm.ControllersDisabledByDefault(),
			kcm.ControllerAliases())
		if err == nil {
			err = kcm.Run(ctx, config.Complete())
		}
		ended <- endedBecause("the controller manager", err)
	}()
	if c.scheduler {
		go func() {
			config, scheduler, err := sched.Setup(ctx, opts.scheduler)
			if err == nil {
				err = sched.Run(ctx, config, scheduler)
			}
			ended <- endedBecause("the scheduler", err)
		}()
	}
	if err := c.announce(); err != nil {
		return err
	}
	stage("ready")

	select {
	case err := <-ended:
		if ctx.Err() == nil {
			return err
		}
	case <-ctx.Done():
		// Nothing needs saving: leave without waiting for connections to drain.
	}
	return nil
}

// announce writes what others wait for: a kubeconfig beside the data, then the mark that it is
// complete.
func (c *controlPlane) announce() error {
	admin, err := os.ReadFile(c.path("admin.kubeconfig"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.path(".kubeconfig"), admin, 0o600); err != nil {
		return err
	}
	if err := os.Rename(c.path(".kubeconfig"), c.path("kubeconfig")); err != nil {
		return err
	}
	return os.WriteFile(c.path("ready"), []byte(c.reachable+"\n"), 0o600)
}

func (c *controlPlane) ensureKeys() (*pki.Set, error) {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, err
	}
	// Left by a run before this one.
	for _, stale := range []string{"ready", "kubeconfig"} {
		if err := os.Remove(c.path(stale)); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
	}
	_, services, err := net.ParseCIDR(c.services)
	if err != nil || services.IP.To4() == nil {
		return nil, fmt.Errorf("service CIDR %q: an IPv4 CIDR is wanted", c.services)
	}
	first := append(net.IP{}, services.IP.To4()...)
	first[3]++
	return pki.Ensure(pki.Config{
		Name: c.name, Dir: c.dir, Domain: c.domain, Service: first,
		Server: c.reachable, Local: c.loopURL,
		SANs: []string{"localhost", "127.0.0.1", c.advertise},
	})
}

// remove takes away what this process wrote, and the directory if nothing else is in it.
func (c *controlPlane) remove() {
	for _, name := range []string{
		"etcd", "pki", "kubeconfig", "ready", "admin.kubeconfig", "kube-proxy.kubeconfig",
		"controller-manager.kubeconfig", "scheduler.kubeconfig",
	} {
		if err := os.RemoveAll(c.path(name)); err != nil {
			fmt.Fprintln(os.Stderr, "labkube control-plane:", err)
		}
	}
	_ = os.Remove(c.dir) // not empty: not ours to remove
}

func (c *controlPlane) path(name string) string { return filepath.Join(c.dir, name) }

func endedBecause(who string, err error) error {
	if err == nil {
		err = errors.New("it gave no reason")
	}
	return fmt.Errorf("%s ended: %w", who, err)
}
