package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"subctl/lab/cgroup"
	"subctl/lab/fabric"
	"subctl/lab/kubeapi"
	"subctl/lab/node"
	"subctl/lab/plan"
	"subctl/lab/process"
)

type upOptions struct {
	clusters, first, nodes int
	overlapping            bool
	multus, dns            bool
	proxyMode, cni         string
	timeout                time.Duration
}

func newUp(l *lab) *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring up what is missing of these clusters",
		Long: `Brings up real Kubernetes clusters, cluster1 to clusterN, and waits until their nodes are Ready. What is up already is left
alone, what is broken is started again, what is missing is added: lab up --clusters 4 after lab up --clusters 3 adds the fourth.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return l.up(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.IntVar(&o.clusters, "clusters", 2, "how many clusters")
	f.IntVar(&o.first, "first", 1, "number of the first")
	f.IntVar(&o.nodes, "nodes", 2, "how many nodes in each")
	f.BoolVar(&o.overlapping, "overlapping", false, "give all of them the same pod and service CIDRs")
	f.StringVar(&o.proxyMode, "proxy-mode", "iptables", "kube-proxy's mode, and flannel's: iptables or nftables")
	f.StringVar(&o.cni, "cni", plan.PTP,
		"what connects pods: ptp (host routes), flannel-vxlan or flannel-host-gw; flannel is short for flannel-vxlan")
	f.BoolVar(&o.multus, "multus", false, "let pods have more networks (NetworkAttachmentDefinitions), by Multus")
	f.BoolVar(&o.dns, "dns", true, "run CoreDNS in each cluster")
	f.DurationVar(&o.timeout, "timeout", 3*time.Minute, "how long to wait for all of it")
	return cmd
}

func (l *lab) up(ctx context.Context, o upOptions) error {
	started := time.Now()
	if err := errors.Join(needRoot(), needTools()); err != nil {
		return err
	}
	locked, err := lock()
	if err != nil {
		return err
	}
	defer locked.Close()
	if err := l.remember(locked); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	tree, err := cgroup.Find()
	if err != nil {
		return err
	}
	if err := l.dropStrangers(tree); err != nil {
		return fmt.Errorf("clearing away what an earlier lab left: %w", err)
	}
	known, err := l.clusters()
	if err != nil {
		return err
	}
	wanted, err := o.wanted(known)
	if err != nil {
		return err
	}
	if err := checkInotify(wanted, tree); err != nil {
		return err
	}
	if err := fabric.Ensure(); err != nil {
		return err
	}
	// Dead nodes come back as machines do: with an empty network. So before the fabric plugs them
	// in.
	for _, c := range wanted {
		if err := l.record(c); err != nil {
			return err
		}
		for _, n := range c.Members() {
			if err := clearDead(n, tree); err != nil {
				return err
			}
		}
		if err := fabric.EnsureCluster(c); err != nil {
			return err
		}
	}
	say(started, "network")
	var wg sync.WaitGroup
	errs := make([]error, len(wanted))
	for i, c := range wanted {
		wg.Go(func() { errs[i] = l.upCluster(ctx, started, c, tree) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	all, err := l.clusters()
	if err != nil {
		return err
	}
	if err := l.writeKubeconfigs(all); err != nil {
		return fmt.Errorf("writing kubeconfigs: %w", err)
	}
	say(started, "up: export KUBECONFIG=%s", filepath.Join(l.kubeconfigs, "lab.yaml"))
	return nil
}

// wanted returns the clusters that are to be up: as requested, and never less than a cluster has
// already.
func (o upOptions) wanted(known []plan.Cluster) ([]plan.Cluster, error) {
	if o.cni == "flannel" {
		o.cni = plan.FlannelVXLAN
	}
	var wanted []plan.Cluster
	for number := o.first; number < o.first+o.clusters; number++ {
		c := plan.Cluster{
			Number:      number,
			Nodes:       o.nodes,
			Overlapping: o.overlapping,
			ProxyMode:   o.proxyMode,
			CNI:         o.cni,
			Multus:      o.multus,
			WithoutDNS:  !o.dns,
		}
		if err := c.Validate(); err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(known, func(k plan.Cluster) bool { return k.Number == number }); i >= 0 {
			k := known[i]
			k.CNI = cmp.Or(k.CNI, plan.PTP)
			if k.Overlapping != c.Overlapping || k.ProxyMode != c.ProxyMode || k.CNI != c.CNI || k.Multus != c.Multus ||
				k.WithoutDNS != c.WithoutDNS {
				return nil, fmt.Errorf(
					"%s is there with overlapping=%t, proxy mode %s, CNI %s, multus=%t and dns=%t, which cannot be changed: lab down first",
					k.Name(), k.Overlapping, k.ProxyMode, k.CNI, k.Multus, !k.WithoutDNS)
			}
			c.Nodes = max(c.Nodes, k.Nodes)
		}
		wanted = append(wanted, c)
	}
	return wanted, nil
}

// dropStrangers ends what runs as the lab's but is not in its directory: an earlier lab whose
// directory was deleted.
func (l *lab) dropStrangers(tree cgroup.Tree) error {
	known, err := l.clusters()
	if err != nil {
		return err
	}
	mine := map[string]bool{plan.FabricNetns: true}
	for _, c := range known {
		for _, p := range c.Ports() {
			mine[p.Netns] = true
		}
	}
	names, err := fabric.Namespaces()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(names, func(name string) bool { return !mine[name] && !plan.IsHost(name) }) &&
		(len(known) > 0 || len(names) == 0) {
		return nil
	}
	if len(known) == 0 {
		return removeRunning(tree)
	}
	return errors.New(
		"there are namespaces of a lab that this directory knows nothing of: lab down first, or give its --dir")
}

func (l *lab) upCluster(ctx context.Context, started time.Time, c plan.Cluster, tree cgroup.Tree) error {
	client, err := l.upControlPlane(ctx, c, tree)
	if err != nil {
		return fmt.Errorf("control plane of %s: %w", c.Name(), err)
	}
	say(started, "%s: control plane", c.Name())
	if c.Flannel() != "" {
		if err := client.EnsureFlannel(ctx, c); err != nil {
			return fmt.Errorf("creating the objects of flannel in %s: %w", c.Name(), err)
		}
	}
	if c.Multus {
		if err := client.EnsureMultus(ctx); err != nil {
			return fmt.Errorf("creating the objects of Multus in %s: %w", c.Name(), err)
		}
	}
	if !c.WithoutDNS {
		if err := client.EnsureCoreDNS(ctx, c); err != nil {
			return fmt.Errorf("creating the objects of CoreDNS in %s: %w", c.Name(), err)
		}
	}
	// A node that runs has reported: any report will do. One that is booted may have done so in its
	// life before.
	since := make([]time.Time, c.Nodes)
	for i, n := range c.Members() {
		_, alive, err := node.Find(n, tree)
		if err == nil && !alive {
			since[i] = time.Now()
			err = l.boot(ctx, n, client, tree)
		}
		if err != nil {
			return err
		}
	}
	for i, n := range c.Members() {
		if err := l.waitReady(ctx, n, client, since[i]); err != nil {
			return err
		}
	}
	for {
		if ok, err := client.CanCreatePods(ctx); ok {
			break
		} else if err := pause(ctx, err); err != nil {
			return fmt.Errorf("waiting for the default service account of %s: %w", c.Name(), err)
		}
	}
	say(started, "%s: %d nodes Ready", c.Name(), c.Nodes)
	return nil
}

func (l *lab) upControlPlane(ctx context.Context, c plan.Cluster, tree cgroup.Tree) (*kubeapi.Client, error) {
	dir := l.clusterDir(c)
	pids, err := tree.Processes(c.Name())
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	if len(process.Alive(pids)) == 0 {
		if err := l.startControlPlane(c, tree, ended); err != nil {
			return nil, err
		}
	}
	for {
		var err error
		if exists(filepath.Join(dir, "ready")) {
			var client *kubeapi.Client
			if client, err = kubeapi.New(dir, c.Server()); err == nil {
				if err = client.Ready(ctx); err == nil {
					return client, nil
				}
			}
		}
		select {
		case err := <-ended:
			return nil, fmt.Errorf("it ended (%w): see %s", err, filepath.Join(dir, "control-plane.log"))
		default:
		}
		if err := pause(ctx, err); err != nil {
			return nil, fmt.Errorf("waiting for %s: %w: see %s", c.Server(), err,
				filepath.Join(dir, "control-plane.log"))
		}
	}
}

func (l *lab) startControlPlane(c plan.Cluster, tree cgroup.Tree, ended chan<- error) error {
	bin, err := binDir()
	if err != nil {
		return err
	}
	dir := l.clusterDir(c)
	if err := os.Remove(filepath.Join(dir, "ready")); err != nil && exists(filepath.Join(dir, "ready")) {
		return err
	}
	if err := tree.Ensure(c.Name()); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, "control-plane.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(bin, "labkube"), "control-plane", "--name="+c.Name(), "--dir="+dir,
		"--domain="+c.Domain(), "--bind=0.0.0.0", "--advertise="+c.API().Addr.Addr().String(),
		fmt.Sprintf("--port=%d", plan.APIPort), "--etcd-port=2379", "--service-cidr="+c.Services().String(),
		"--pod-cidr="+c.Pods().String())
	cmd.Stdout = log
	cmd.Stderr = log
	cmd.Dir = "/"
	cmd.SysProcAttr = &unix.SysProcAttr{
		Setsid: true, Credential: &syscall.Credential{Uid: controlPlaneUser},
		AmbientCaps: []uintptr{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER},
	}
	if err := fabric.In(c.Netns(), cmd.Start); err != nil {
		return err
	}
	go func() { ended <- cmd.Wait() }()
	return tree.Enter(c.Name(), cmd.Process.Pid)
}
