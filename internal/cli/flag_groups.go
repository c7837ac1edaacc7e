package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is the number of columns of the flags in a help text.
const helpWidth = 100

// flagGroups is the key of the annotation of a command with the titles of its groups of flags, a
// line each, and of a flag with the title of its group.
const flagGroups = "subctl/flag-groups"

// GroupFlags gives flags of a command, which must exist, a group of their own in its help. Flags
// without a group come first.
func GroupFlags(c *cobra.Command, title string, names ...string) {
	annotate(c, flagGroups, strings.TrimPrefix(c.Annotations[flagGroups]+"\n"+title, "\n"))
	for _, name := range names {
		if err := c.Flags().SetAnnotation(name, flagGroups, []string{title}); err != nil {
			panic(err) // a mistake of the program
		}
	}
}

// flagUsages returns the flags of a command for its help, in their groups.
func flagUsages(c *cobra.Command) string {
	titles := []string{""}
	if of := c.Annotations[flagGroups]; of != "" {
		titles = append(titles, strings.Split(of, "\n")...)
	}
	groups := map[string]*pflag.FlagSet{}
	for _, title := range titles {
		groups[title] = pflag.NewFlagSet(title, pflag.ContinueOnError)
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		group := groups[strings.Join(f.Annotations[flagGroups], "")]
		if group == nil { // a flag that another command has grouped
			group = groups[""]
		}
		group.AddFlag(f)
	})
	var out strings.Builder
	for _, title := range titles {
		if title != "" {
			out.WriteString("\n" + title + ":\n")
		}
		out.WriteString(groups[title].FlagUsagesWrapped(helpWidth))
	}
	return out.String()
}
