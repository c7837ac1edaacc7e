package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Lackable are the flags that every command has unless it states a reason with Lacks.
var Lackable = []string{"contexts", "output"}

// The keys of the annotations of commands.
const (
	lacks   = "subctl/lacks-" // and the name of a flag: the reason
	offline = "subctl/offline"
)

// Lacks states the reason why c and its subcommands do not have a flag. The reason is printed if
// the flag is set.
func Lacks(c *cobra.Command, flag, why string) { annotate(c, lacks+flag, why) }

// ContactsNoCluster states that c works without any cluster, and hence without the configuration
// and --contexts. hint, which may be empty, refers to another command.
func ContactsNoCluster(c *cobra.Command, hint string) {
	annotate(c, offline, "true")
	Lacks(c, "contexts", "it contacts no cluster"+hint)
}

func annotate(c *cobra.Command, key, value string) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[key] = value
}

// annotation returns the annotation of a command, or of the nearest parent that has one.
func annotation(c *cobra.Command, key string) string {
	for ; c != nil; c = c.Parent() {
		if value := c.Annotations[key]; value != "" {
			return value
		}
	}
	return ""
}

// WhyLacking returns the reason why a command does not have a flag; empty if there is none.
func WhyLacking(c *cobra.Command, flag string) string { return annotation(c, lacks+flag) }

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
	if why := WhyLacking(c, name); why != "" {
		return fmt.Errorf("%s has no --%s: %s", c.CommandPath(), name, why)
	}
	return nil
}

// Offline reports whether a command works without any cluster. A command that only groups
// others does: it prints its help.
func Offline(c *cobra.Command) bool { return c.HasSubCommands() || annotation(c, offline) != "" }
