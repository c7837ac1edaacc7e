package cli

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"
)

// Help prints what a command does, examples, the rest of the description, and the flags.
func Help(c *cobra.Command) {
	summary, description, _ := strings.Cut(cmp.Or(c.Long, c.Short), "\n\n")
	text := summary + "\n\n"
	if c.Example != "" {
		text += "Examples:\n" + c.Example + "\n\n"
	}
	if description != "" {
		text += description + "\n\n"
	}
	c.Print(text + c.UsageString())
}

// UsageTemplate returns cobra's template without the examples, which help prints, and without the
// global flags, which would bury the command's own flags, which are in groups: see GroupFlags.
func UsageTemplate(cobras string) string {
	before, rest, _ := strings.Cut(cobras, "{{if .HasExample}}")
	_, rest, _ = strings.Cut(rest, "{{end}}")
	cobras = before + rest
	before, rest, _ = strings.Cut(cobras, "{{if .HasAvailableInheritedFlags}}")
	_, after, _ := strings.Cut(rest, "{{end}}")
	cobra.AddTemplateFunc("flagUsages", flagUsages)
	before = strings.Replace(before, ".LocalFlags.FlagUsages", "flagUsages .", 1)
	return strings.Replace(before, "{{if .HasAvailableLocalFlags}}", "{{if and .HasParent .HasAvailableLocalFlags}}",
		1) +
		"\n\nEvery command takes --context, --kubeconfig and the other flags that\n\"subctl options\" lists." + after
}
