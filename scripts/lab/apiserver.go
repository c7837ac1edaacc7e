package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newAPIServer() *cobra.Command {
	var dir string
	var port int
	cmd := &cobra.Command{
		Use:   "apiserver --dir DIR",
		Short: "Run an API server without nodes, in the foreground, for tests",
		Long: `Runs etcd, kube-apiserver and kube-controller-manager on 127.0.0.1, without root, and writes DIR/kubeconfig when they are ready
(in about 3 s). SIGTERM ends it and removes what it wrote; so does the end of the process that started it. Any number may run
at once, each with its own directory.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return become("labkube", "control-plane", "--name=apiserver", "--dir="+dir, fmt.Sprintf("--port=%d", port),
				"--scheduler=false", "--dies-with-its-parent", "--removes-its-data")
		},
	}
	// Not the lab's --dir: this is a directory of the caller, and there is no default.
	cmd.Flags().StringVar(&dir, "dir", "", "where keys, data and the kubeconfig go")
	cmd.Flags().IntVar(&port, "port", 0, "port to listen on; 0 takes a free one")
	cmd.MarkFlagRequired("dir")
	return cmd
}
