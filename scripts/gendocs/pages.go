package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"subctl/cmd"
)

// pages returns one page per command.
func pages() map[string]string {
	root := cmd.NewRoot(genericiooptions.NewTestIOStreamsDiscard())
	root.InitDefaultCompletionCmd()
	files := map[string]string{}
	addPage(files, root)
	return files
}

// addPage adds the pages of c and of its subcommands.
func addPage(files map[string]string, c *cobra.Command) {
	files["docs/cli/"+pageName(c)] = page(c)
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			addPage(files, sub)
		}
	}
}

// page returns the page of a command, in Markdown.
func page(c *cobra.Command) string {
	var b strings.Builder
	block := func(head, text string) {
		if text = strings.Trim(text, "\n"); text != "" {
			fmt.Fprintf(&b, "%s```\n%s\n```\n\n", head, text)
		}
	}
	fmt.Fprintf(&b, "<!-- generated: make generate -->\n\n# %s\n\n%s.\n\n", c.CommandPath(), c.Short)
	block("", c.UseLine())
	if long := strings.TrimSpace(strings.TrimPrefix(c.Long, c.Short+".")); long != "" {
		fmt.Fprintf(&b, "%s\n\n", long)
	}
	block("## Examples\n\n", c.Example)
	switch {
	case c.Name() == "options":
		block("## Flags of all commands\n\n", c.InheritedFlags().FlagUsages())
	case c.HasParent():
		block("## Flags\n\n", c.NonInheritedFlags().FlagUsages())
		fmt.Fprintf(&b, "Every command also takes [these flags](%s_options.md).\n\n", c.Root().Name())
	}
	if subs := links(c); subs != "" {
		fmt.Fprintf(&b, "## Commands\n\n%s\n", subs)
	}
	if c.HasParent() {
		fmt.Fprintf(&b, "Up: [%s](%s)\n", c.Parent().CommandPath(), pageName(c.Parent()))
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// links returns a Markdown list of the subcommands of c.
func links(c *cobra.Command) string {
	var b strings.Builder
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			fmt.Fprintf(&b, "* [%s](%s): %s\n", sub.CommandPath(), pageName(sub), sub.Short)
		}
	}
	return b.String()
}

// pageName returns the file name of a command's page.
func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "_") + ".md" }
