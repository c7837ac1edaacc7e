package cmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"subctl/internal/cli"
	"subctl/internal/printer"
	"subctl/internal/words"
	"subctl/sdewan/view"
)

const sdewanExplainLong = `Explain a rule: on which CNF and pods it is, which rules it needs and which need it, after
which other rules it comes, which packets it is about, and what it does with them. The other rules
are those, of any kind, that decide before it about packets of the same zones.

RULE is the name of a rule or, where rules of several kinds have this name, KIND/NAME. The exit
code is 3 if the rule is not in sync.`

type sdewanExplain struct {
	sdewanLook
	name   string
	format *printer.Flag
}

func newSdewanExplain(g *globals) *cobra.Command {
	o := &sdewanExplain{sdewanLook: sdewanLook{globals: g}}
	c := &cobra.Command{
		Use:   "explain RULE",
		Short: "Explain where a rule applies and what it does",
		Long:  sdewanExplainLong,
		Example: `  subctl sdewan explain http-rule
  subctl sdewan explain Mwan3Rule/http-rule -o json`,
		Args: func(c *cobra.Command, args []string) error {
			if err := oneArgument("rule", &o.name)(c, args); err != nil {
				return err
			}
			return checkRuleName(o.name)
		},
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.addFlags(c)
	c.ValidArgsFunction = o.completions(ruleNames)
	o.format = cli.Output(c, printer.Table, printer.JSON, printer.YAML)
	return c
}

// checkRuleName checks the kind of KIND/NAME.
func checkRuleName(text string) error {
	kind, name, both := strings.Cut(text, "/")
	switch {
	case both && !view.IsKind(kind):
		return fmt.Errorf("there is no kind of rules %q: use one of %s, in KIND/NAME%s", kind,
			strings.Join(view.KindNames(), ", "), words.Meant(kind, view.KindNames()))
	case both && name == "":
		return fmt.Errorf("the name of the rule is missing after %q", text)
	}
	return nil
}

func (o *sdewanExplain) run(ctx context.Context) error {
	c, v, err := o.read(ctx)
	if err != nil {
		return err
	}
	v.ReadServices(ctx, c)
	found := v.FindRule(o.name)
	switch {
	case len(found) == 0:
		return fmt.Errorf("there is no rule %q%s: see subctl sdewan show rules%s", o.name, o.where(),
			words.Meant(o.name, bareNames(v)))
	case len(found) > 1:
		var list []string
		for _, r := range found {
			list = append(list, view.KindName(r)+"/"+r.GetName())
		}
		return fmt.Errorf("several rules are called %q: specify one of %s", o.name, words.List(list))
	}
	e := v.Explain(found[0])
	if format := o.format.Format(); format.Structured() {
		err = printer.Encode(o.Out, format, e)
	} else {
		_, err = o.Out.Write([]byte(explained(e)))
	}
	if err != nil || e.InSync {
		return err
	}
	return cli.Trouble()
}

// explained returns an explanation as text.
func explained(e view.Explanation) string {
	var b strings.Builder
	line := func(head, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%-9s %s\n", head, printer.Clean(text))
		}
	}
	list := func(head string, items []string) {
		for i, item := range items {
			if i > 0 {
				head = ""
			}
			line(head, item)
		}
	}
	fmt.Fprintf(&b, "%s %s/%s\n", e.Kind, e.Namespace, e.Name)
	cnf := "none"
	if e.CNF != "" {
		cnf = fmt.Sprintf("%s (Deployment %s), pods %s", e.Purpose, e.CNF,
			cmp.Or(words.List(e.Pods), "none that is ready"))
	}
	line("CNF", cnf)
	line("state", e.State)
	list("needs", e.Needs)
	list("used by", e.UsedBy)
	line("after", strings.Join(e.After, ", "))
	line("matches", e.Matches)
	line("does", e.Does)
	return b.String()
}

// bareNames returns the names of all rules.
func bareNames(v *view.View) (names []string) {
	for _, r := range v.Rules {
		names = append(names, r.GetName())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ruleNames returns KIND/NAME of all rules, for completions.
func ruleNames(v *view.View) (names []string) {
	for _, r := range v.Rules {
		names = append(names, view.KindName(r)+"/"+r.GetName())
	}
	return names
}
