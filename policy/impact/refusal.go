package impact

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"subctl/internal/printer"
	"subctl/internal/words"
	"subctl/policy"
)

// most is the number of pairs that a message names one by one.
const most = 10

// Refusal returns an error that names the clusters which use the same addresses, the pairs that
// lose their cable or its encryption, and the clusters that are cut off; nil if there are none.
// Commands refuse such a change unless the user confirms it.
func (c Change) Refusal() error {
	var errs []error
	for _, x := range c.Conflicts {
		errs = append(errs, errors.New(x.String()))
	}
	errs = append(errs, c.losses())
	if len(c.Alone) > 0 {
		errs = append(errs,
			fmt.Errorf("these clusters would not be in any clusterset, and not be connected to any other: %s",
				words.List(c.Alone)))
	}
	return errors.Join(errs...)
}

// losses returns an error that names the pairs that lose their cable or its encryption; nil if
// there are none.
func (c Change) losses() error {
	losses := c.Losses()
	if len(losses) == 0 {
		return nil
	}
	unconnected := 0
	for _, x := range losses {
		if x.Then.Err != nil {
			unconnected++
		}
	}
	var heads []string
	if unconnected > 0 {
		heads = append(heads, words.Count(unconnected, "pair")+" of clusters would have no cable")
	}
	if n := len(losses) - unconnected; n > 0 {
		heads = append(heads, words.Count(n, "pair")+" of clusters would lose encryption")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s:", strings.Join(heads, ", and "))
	for _, x := range losses[:min(len(losses), most)] {
		fmt.Fprintf(&b, "\n  %s", x.loss())
	}
	if n := len(losses) - most; n > 0 {
		fmt.Fprintf(&b, "\n  and %s more", words.Count(n, "pair"))
	}
	return errors.New(b.String())
}

// loss returns a pair that loses something, with its cables before and after.
func (c CableChange) loss() string {
	text := fmt.Sprintf("%s: %s → %s", c.Pair, c.Now, c.Then)
	if c.Then.Err == nil {
		text += ", not encrypted"
	}
	return printer.Clean(text)
}

// Warnings returns the policies and rules that decide nothing any more, one sentence each.
func (c Change) Warnings() (out []string) {
	for _, s := range c.Shadowed {
		out = append(out, fmt.Sprintf("%s never decides: %s has the same selectors and takes precedence", s.Rule, s.By))
	}
	for _, name := range c.Idle {
		if !slices.ContainsFunc(c.Shadowed, func(s policy.Shadow) bool { return s.Policy == name }) {
			out = append(out, fmt.Sprintf("policy %s decides no pair any more", name))
		}
	}
	return out
}
