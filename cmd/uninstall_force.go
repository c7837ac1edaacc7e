package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"subctl/cluster/uninstall"
	"subctl/internal/cli"
)

// allObstacles is the value of --force that stands for all of them. Without a value, --force is a
// mistake: nobody gets the widest force for a word that is missing.
const allObstacles = "all"

// forceFlag is --force of a command that removes something: it names the obstacles in spite of
// which the command continues.
type forceFlag struct {
	values    []string
	known     []uninstall.Obstacle
	obstacles []uninstall.Obstacle // that values name, after the check
}

// add declares the flag of c, with its completion and its check.
func (f *forceFlag) add(c *cobra.Command, known []uninstall.Obstacle) {
	f.known = known
	c.Flags().StringSliceVar(&f.values, "force", nil,
		"continue in spite of these obstacles: "+strings.Join(f.names(), ", ")+"; or all of them: "+allObstacles)
	cli.Complete(c, "force", func(context.Context) ([]string, error) { return append(f.names(), allObstacles), nil })
	cli.Before(c, f.check)
}

// has reports whether the command continues in spite of an obstacle.
func (f *forceFlag) has(o uninstall.Obstacle) bool { return slices.Contains(f.obstacles, o) }

// names returns the values of the flag.
func (f *forceFlag) names() []string {
	var out []string
	for _, o := range f.known {
		out = append(out, string(o))
	}
	return out
}

// check reads the values.
func (f *forceFlag) check() error {
	var errs []error
	for _, name := range f.values {
		switch {
		case name == allObstacles:
			f.obstacles = f.known
		case name == "false": // of the environment or the configuration file, where --force of other commands is a bool
		case slices.Contains(f.names(), name):
			f.obstacles = append(slices.Clone(f.obstacles), uninstall.Obstacle(name))
		default:
			errs = append(errs, fmt.Errorf("--force=%s names no obstacle: use %s, or %s", name,
				strings.Join(f.names(), ", "), allObstacles))
		}
	}
	return errors.Join(errs...)
}
