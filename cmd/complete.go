package cmd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/internal/look"
)

// complete registers a list as the completions of a flag's values, or of the items of a flag
// that takes a list. Errors are not printed while the user is typing.
func complete(c *cobra.Command, flag string, list func(context.Context) ([]string, error)) {
	err := c.RegisterFlagCompletionFunc(flag, func(about *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		values, err := list(about.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		if f := about.Flag(flag); f != nil && f.Value.Type() == "stringSlice" {
			values = nextItems(values, typed)
		}
		return values, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the flag does not exist: a bug in the command's constructor
	}
}

// nextItems returns what may be typed after the items of a list before the last comma: these
// items, and one that is not among them.
func nextItems(values []string, typed string) []string {
	end := strings.LastIndex(typed, ",") + 1
	chosen := strings.Split(typed[:end], ",")
	var out []string
	for _, v := range values {
		if !slices.Contains(chosen, v) {
			out = append(out, typed[:end]+v)
		}
	}
	return out
}

// completeArgument returns the completion of a command that takes one argument.
func completeArgument(list func(context.Context) ([]string, error)) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		values, err := list(c.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}

// optionalName returns the Args of a command whose argument, if there is one, is the value of
// a flag: "delete NAME" is "delete --name NAME". It sets the flag.
func optionalName(flag string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return nil
		case len(args) > 1:
			return fmt.Errorf("%s takes one argument: omit %q", c.CommandPath(), args[1])
		case c.Flags().Changed(flag):
			return fmt.Errorf("the argument %q is the same as --%s: set only one of them", args[0], flag)
		}
		return c.Flags().Set(flag, args[0])
	}
}

// clusters returns the names of all clusters of the kubeconfig, sorted.
func (g *globals) clusters() ([]string, error) {
	raw, err := g.kubeconfig()
	return slices.Sorted(maps.Keys(raw.Clusters)), err
}

// users returns the names of all users of the kubeconfig, sorted.
func (g *globals) users() ([]string, error) {
	raw, err := g.kubeconfig()
	return slices.Sorted(maps.Keys(raw.AuthInfos)), err
}

// nodes returns the names of the nodes of the current cluster, sorted.
func (g *globals) nodes(ctx context.Context) ([]string, error) {
	c, err := g.client(ctx)
	if err != nil {
		return nil, err
	}
	var list corev1.NodeList
	if err := c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("reading the nodes: %w", err)
	}
	names := make([]string, len(list.Items))
	for i, n := range list.Items {
		names[i] = n.Name
	}
	slices.Sort(names)
	return names, nil
}

// configMaps returns the names of the ConfigMaps with settings of cable drivers in the
// current cluster, sorted.
func (g *globals) configMaps(ctx context.Context) ([]string, error) {
	c, err := g.client(ctx)
	if err != nil {
		return nil, err
	}
	return settingsIn(ctx, c, cluster.Namespace)
}

// settingsIn returns the names of the ConfigMaps with settings of cable drivers in a
// namespace, sorted.
func settingsIn(ctx context.Context, c client.Client, namespace string) ([]string, error) {
	var list corev1.ConfigMapList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("reading the ConfigMaps: %w", err)
	}
	var names []string
	for _, cm := range list.Items {
		if _, ok := cm.Data[v1alpha1.CableCustomConfig]; ok {
			names = append(names, cm.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// completionTime is the time that clusters have to answer while the user waits for a completion.
const completionTime = 3 * time.Second

// known reads the clusters of targets that answer in time, and the clusters that each of them knows.
func known(ctx context.Context, targets []*look.Target) []look.Site {
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	sites, errs := look.ReadAll(ctx, targets, look.ReadMembers)
	var out []look.Site
	for i, s := range sites {
		if errs[i] == nil && s.Members != nil {
			out = append(out, s)
		}
	}
	return out
}

// clusterSets returns the clustersets of targets, sorted.
func clusterSets(ctx context.Context, targets []*look.Target) []string {
	var out []string
	for _, s := range known(ctx, targets) {
		out = append(out, s.Members.Sets...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
