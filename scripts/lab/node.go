package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"subctl/lab/cgroup"
	"subctl/lab/fabric"
	"subctl/lab/kubeapi"
	"subctl/lab/node"
	"subctl/lab/plan"
	"subctl/lab/process"
)

func newKill(l *lab) *cobra.Command {
	var keepNetwork bool
	cmd := &cobra.Command{
		Use:   "kill NAME",
		Short: "Cut the power of a node or of an API server",
		Long: `Ends all processes of a node at once and takes its network away, as a power cut would; of an API server (cluster1-api), all of the
control plane. The disk stays: lab start boots it again.

The kernel removes a network under a lock that all nodes share, so that others wait for a moment. With --keep-network, the network of the node
stays until it is killed without this flag, or started. Until then it forwards packets: cut the node off first.`,
		Example: `  lab kill cluster1-node1
  lab cut cluster1-node1 && lab kill --keep-network cluster1-node1   # a power cut that costs the other nodes no time`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return l.kill(args[0], keepNetwork) },
	}
	cmd.Flags().BoolVar(&keepNetwork, "keep-network", false,
		"end only the processes of the node; not for an API server")
	return cmd
}

func (l *lab) kill(name string, keepNetwork bool) error {
	c, ok, err := l.controlPlane(name)
	switch {
	case err != nil:
		return err
	case ok && keepNetwork:
		return fmt.Errorf(
			"--keep-network is for nodes only, and %s is an API server, whose network always stays: omit the flag",
			name)
	case ok:
		return killControlPlane(c)
	}
	n, tree, err := l.node(name)
	if err != nil {
		return err
	}
	if keepNetwork {
		return node.Halt(n, tree)
	}
	return node.Kill(n, tree)
}

func newStart(l *lab) *cobra.Command {
	return &cobra.Command{
		Use:   "start NAME",
		Short: "Boot a node or an API server that was killed, and wait until it is ready",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			started := time.Now()
			ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Minute)
			defer cancel()
			if c, ok, err := l.controlPlane(args[0]); err != nil {
				return err
			} else if ok {
				return l.startAgain(ctx, started, c)
			}
			n, tree, err := l.node(args[0])
			if err != nil {
				return err
			}
			if _, alive, err := node.Find(n, tree); err != nil || alive {
				return err
			}
			client, err := kubeapi.New(l.clusterDir(n.Cluster), n.Cluster.Server())
			if err != nil {
				return err
			}
			if err := clearDead(n, tree); err != nil {
				return err
			}
			if err := fabric.EnsureCluster(n.Cluster); err != nil {
				return err
			}
			if err := l.boot(ctx, n, client, tree); err != nil {
				return err
			}
			if err := l.waitReady(ctx, n, client, started); err != nil {
				return err
			}
			say(started, "%s Ready", n.Name())
			return nil
		},
	}
}

// controlPlane finds the cluster whose API server has a name. It is not ok if no API server has.
func (l *lab) controlPlane(name string) (c plan.Cluster, ok bool, err error) {
	if err := needRoot(); err != nil {
		return c, false, err
	}
	clusters, err := l.running()
	i := slices.IndexFunc(clusters, func(c plan.Cluster) bool { return c.API().Name == name })
	if i < 0 {
		return c, false, err
	}
	return clusters[i], true, nil
}

func killControlPlane(c plan.Cluster) error {
	tree, err := cgroup.Find()
	if err != nil {
		return err
	}
	pids, err := tree.Processes(c.Name())
	if err != nil {
		return err
	}
	return process.Kill(pids)
}

// startAgain starts a control plane, unless it runs.
func (l *lab) startAgain(ctx context.Context, started time.Time, c plan.Cluster) error {
	tree, err := cgroup.Find()
	if err != nil {
		return err
	}
	if _, err := l.upControlPlane(ctx, c, tree); err != nil {
		return fmt.Errorf("control plane of %s: %w", c.Name(), err)
	}
	say(started, "%s ready", c.API().Name)
	return nil
}

// newNodeInit is not for users: it is what a node's first process runs.
func newNodeInit() *cobra.Command {
	return &cobra.Command{
		Use: "node-init NAME DIR BIN", Hidden: true, Args: cobra.ExactArgs(3),
		RunE: func(_ *cobra.Command, args []string) error { return node.Init(args[0], args[1], args[2]) },
	}
}

// node finds a node of the lab by its name.
func (l *lab) node(name string) (plan.Node, cgroup.Tree, error) {
	if err := needRoot(); err != nil {
		return plan.Node{}, cgroup.Tree{}, err
	}
	clusters, err := l.running()
	if err != nil {
		return plan.Node{}, cgroup.Tree{}, err
	}
	n, err := plan.FindNode(clusters, name)
	if err != nil {
		return plan.Node{}, cgroup.Tree{}, err
	}
	tree, err := cgroup.Find()
	return n, tree, err
}

// clearDead takes away what a node that does not run has left.
func clearDead(n plan.Node, tree cgroup.Tree) error {
	if _, alive, err := node.Find(n, tree); err != nil || alive {
		return err
	}
	return node.Kill(n, tree)
}

func (l *lab) boot(ctx context.Context, n plan.Node, client *kubeapi.Client, tree cgroup.Tree) error {
	place, err := l.place(n)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(place.Dir, 0o700); err != nil {
		return err
	}
	if err := client.EnsureNode(ctx, n); err != nil {
		return fmt.Errorf("creating the Node object of %s: %w", n.Name(), err)
	}
	return node.Start(n, place, tree)
}

// waitReady waits until a node's kubelet has reported it Ready, not before since.
func (l *lab) waitReady(ctx context.Context, n plan.Node, client *kubeapi.Client, since time.Time) error {
	for {
		ready, err := client.NodeReady(ctx, n.Name(), since)
		if ready {
			return nil
		}
		if err := pause(ctx, err); err != nil {
			dir := filepath.Join(l.dir, n.Name())
			return fmt.Errorf("waiting for %s to be Ready: %w: see %s and %s", n.Name(), err,
				filepath.Join(dir, "init.log"), filepath.Join(dir, "var/log/kubelet.log"))
		}
	}
}

// pause waits a little before the next look, and gives up with the last error when the time is
// over.
func pause(ctx context.Context, last error) error {
	select {
	case <-ctx.Done():
		if last != nil {
			return fmt.Errorf("%w (%w)", ctx.Err(), last)
		}
		return ctx.Err()
	case <-time.After(200 * time.Millisecond):
		return nil
	}
}
