package cmd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// lacking are the reasons why commands have no --contexts or no --output, by the name of the
// flag and the path of the command or of its parent. Every other command has both.
var lacking = map[string]map[string]string{
	"contexts": {
		"subctl deploy-broker":       "a broker is on one cluster: choose it with --context",
		"subctl recover-broker-info": "a broker is on one cluster: choose it with --context",
		"subctl invite":              "a broker is on one cluster: choose it with --context",
		"subctl revoke":              "a broker is on one cluster: choose it with --context",
		"subctl join":                "each cluster joins with its own ID and networks: choose it with --context",
		"subctl rotate-key":          "keys are replaced one cluster at a time, so that at most one end of a connection changes: choose the cluster with --context",
		"subctl uninstall":           "clusters are removed one at a time, each after its own confirmation: choose the cluster with --context",
		"subctl cable-policy":        "clusters of a clusterset share their cable policies, so one of them is enough: choose it with --context",
		"subctl label":               "each cluster has its own labels: choose it by its name",
		"subctl show plan":           "a node belongs to one cluster: choose it with --context",
		"subctl version":             "it contacts no cluster: see subctl show versions",
		"subctl options":             "it contacts no cluster",
		"subctl help":                "it contacts no cluster",
		"subctl completion":          "it contacts no cluster",
		"subctl agent":               "an agent runs in one cluster",
	},
	"output": {
		"subctl recover-broker-info": "its data are the join file, which --broker-info - prints",
		"subctl invite":              "its data are the join file: choose the file with --join-file, - for stdout",
		"subctl options":             "it prints text for people",
		"subctl help":                "it prints text for people",
		"subctl completion":          "it prints a script for the shell",
		"subctl agent":               "an agent prints no data: see --log-format",
	},
}

// whyLacking returns the reason why a command does not have a flag; empty if there is none.
func whyLacking(c *cobra.Command, flag string) string {
	for ; c != nil; c = c.Parent() {
		if why := lacking[flag][c.CommandPath()]; why != "" {
			return why
		}
	}
	return ""
}

// lackingError returns the error about a flag that a command lacks for a reason; nil if err is
// about something else.
func lackingError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return nil
	}
	name := unknown.GetSpecifiedName()
	if strings.HasPrefix(unknown.GetSpecifiedShortnames(), "o") {
		name = "output"
	}
	if why := whyLacking(c, name); why != "" {
		return fmt.Errorf("%s has no --%s: %s", c.CommandPath(), name, why)
	}
	return nil
}

// offline reports whether a command works without any cluster, and hence without the
// configuration.
func offline(c *cobra.Command) bool {
	if c.HasSubCommands() { // it prints its help
		return true
	}
	for ; c.HasParent(); c = c.Parent() {
		switch c.CommandPath() {
		case "subctl version", "subctl options", "subctl help", "subctl completion":
			return true
		}
	}
	return false
}
