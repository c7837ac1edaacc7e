package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"subctl/lab/cgroup"
	"subctl/lab/fabric"
	"subctl/lab/node"
	"subctl/lab/plan"
)

func newExec(l *lab) *cobra.Command {
	return &cobra.Command{
		Use:   "exec NODE -- COMMAND [ARG]...",
		Short: "Run a command in a node's namespaces, or in the network namespace of a host",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if fabric.HasHost(args[0]) {
				return fabric.RunInHost(cmd.Context(), args[0], args[1:])
			}
			n, tree, err := l.node(args[0])
			if err != nil {
				return err
			}
			pid, err := alive(n, tree)
			if err != nil {
				return err
			}
			return node.Run(cmd.Context(), pid,
				node.Command{Args: args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
		},
	}
}

func newLoadImage(l *lab) *cobra.Command {
	var only []string
	cmd := &cobra.Command{
		Use:   "load-image FILE",
		Short: "Load an image into every node that runs",
		Long: `Loads an image (an OCI layout or docker archive in a tar file) into every node that runs. Pods that use it want imagePullPolicy
Never or IfNotPresent. A node that is added later has it only when it is loaded again; one that was killed keeps it.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needRoot(); err != nil {
				return err
			}
			return l.loadImage(cmd.Context(), args[0], only)
		},
	}
	cmd.Flags().StringSliceVar(&only, "clusters", nil, "only into these clusters (1,2 or cluster1,cluster2)")
	return cmd
}

func (l *lab) loadImage(ctx context.Context, file string, only []string) error {
	if _, err := os.Stat(file); err != nil {
		return err
	}
	clusters, err := l.running()
	if err != nil {
		return err
	}
	for i, name := range only {
		if _, err := strconv.Atoi(name); err == nil {
			only[i] = "cluster" + name
			name = only[i]
		}
		if !slices.ContainsFunc(clusters, func(c plan.Cluster) bool { return c.Name() == name }) {
			return fmt.Errorf("no cluster is called %q", name)
		}
	}
	tree, err := cgroup.Find()
	if err != nil {
		return err
	}
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		errs  []error
		slots = make(chan struct{}, 2) // unpacking is bound by the disk: more at once are slower
	)
	for _, c := range clusters {
		if len(only) > 0 && !slices.Contains(only, c.Name()) {
			continue
		}
		for _, n := range c.Members() {
			wg.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				if err := loadInto(ctx, n, tree, file); err != nil {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, fmt.Errorf("loading %s into %s: %w", filepath.Base(file), n.Name(), err))
				}
			})
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

func loadInto(ctx context.Context, n plan.Node, tree cgroup.Tree, file string) error {
	pid, ok, err := node.Find(n, tree)
	if err != nil || !ok {
		return err
	}
	image, err := os.Open(file)
	if err != nil {
		return err
	}
	defer image.Close()
	var said bytes.Buffer
	// By descriptor: the file need not be visible inside.
	err = node.Run(ctx, pid, node.Command{
		Args:  []string{"labkube", "ctr", "-n", "k8s.io", "images", "import", "-"},
		Stdin: image, Stdout: &said, Stderr: &said,
	})
	if err != nil {
		return fmt.Errorf("%w: %s", err, said.String())
	}
	return nil
}

// alive finds the first process of a node that has to run.
func alive(n plan.Node, tree cgroup.Tree) (int, error) {
	pid, ok, err := node.Find(n, tree)
	if err == nil && !ok {
		err = fmt.Errorf("%s does not run: lab start %s", n.Name(), n.Name())
	}
	return pid, err
}

// become replaces this process by a binary of the lab.
func become(name string, args ...string) error {
	bin, err := binDir()
	if err != nil {
		return err
	}
	path := filepath.Join(bin, name)
	return fmt.Errorf("running %s: %w", path, unix.Exec(path, append([]string{path}, args...), os.Environ()))
}
