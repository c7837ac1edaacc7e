package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

func newKubeconfig(l *lab) *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig [N]",
		Short: "Print the path of the kubeconfig of cluster N, or of all",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := "lab"
			if len(args) == 1 {
				number, err := strconv.Atoi(strings.TrimPrefix(args[0], "cluster"))
				if err != nil {
					return fmt.Errorf("cluster %q: a number is wanted", args[0])
				}
				name = fmt.Sprintf("cluster%d", number)
			}
			file, err := filepath.Abs(filepath.Join(l.kubeconfigs, name+".yaml"))
			if err != nil {
				return err
			}
			if _, err := os.Stat(file); err != nil {
				return fmt.Errorf("no kubeconfig there: is it up? %w", err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), file)
			return nil
		},
	}
}

func newKubectl() *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl ...",
		Short:              "Kubectl, of the version of the clusters",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return become("kubectl", args...)
		},
	}
}
