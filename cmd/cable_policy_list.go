package cmd

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/cli"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/words"
	"subctl/policy/catalog"
)

const cablePolicyListLong = `List the cable policies, and the pairs of clusters that each of them decides now.

Each rule of a policy has a line. STATE is ok, or a problem: a mistake in the policy, a
ConfigMap that cannot be used, or a policy without effect, because it is not on the broker,
or is not signed there. Details are printed on stderr, and so is what the gateways of the current cluster
report that is not as the policies decide (subctl show connections), and the pairs of which
they report nothing.

The exit code is 3 if a policy has a problem, if a pair of clusters has no cable, or if a
gateway of the current cluster uses another cable, or one that is not connected.`

type cablePolicyList struct {
	policyOptions
	format *printer.Flag
}

func newCablePolicyList(g *globals) *cobra.Command {
	o := &cablePolicyList{policyOptions: policyOptions{globals: g}}
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls", "show"},
		Short:   "List the cable policies and what they decide",
		Long:    cablePolicyListLong,
		Example: "  subctl cable-policy list\n  subctl cable-policy list -o wide --context hub",
		Args:    g.noArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.policyOptions.addFlags(c)
	o.format = cli.Output(c, printer.Table, printer.Wide, printer.JSON, printer.YAML)
	return c
}

func (o *cablePolicyList) run(ctx context.Context) error {
	all, err := o.openWithUses(ctx)
	if err != nil {
		return err
	}
	l := all.List()
	report := o.progress()
	const most = 50 // problems; more are too many to read
	for _, text := range l.Troubles[:min(len(l.Troubles), most)] {
		report.Warn("%s", printer.CleanLines(text))
	}
	if len(l.Troubles) > most {
		report.Warn("and %d more", len(l.Troubles)-most)
	}
	if l.Undecided > 0 {
		report.Note("%s: decided by %s", words.Count(l.Undecided, "pair"), catalog.Decider(""))
	}
	if n := len(l.NotObserved); n > 0 {
		report.Note("%s: what the gateways do is not observed here (subctl cable-policy explain prints why): %s",
			words.Count(n, "pair"), words.List(pairNames(l.NotObserved)))
	}
	if len(l.Rules) == 0 {
		report.Note("there are no cable policies")
	}
	o.noteBroker(ctx, all)
	if err := printer.Print(o.Out, o.format.Format(), l.Rules, policyColumns()); err != nil || len(l.Troubles) == 0 {
		return err
	}
	return cli.Trouble()
}

// noteBroker reports how many policies there are on the broker if the cluster is a member and hosts
// one: all are the policies that the member has. A user who may not read the broker gets no note.
func (o *cablePolicyList) noteBroker(ctx context.Context, all *catalog.Catalog) {
	if all.Keeper == submarinerv1.BrokerID {
		return
	}
	c, err := o.Client(ctx)
	if err != nil {
		return
	}
	on, err := look.ReadPolicies(ctx, c, true)
	if err != nil {
		return
	}
	n := 0
	for _, p := range on.Policies {
		if on.Maker(p) == submarinerv1.BrokerID {
			n++
		}
	}
	o.progress().Note("this cluster also hosts a broker, with %d cable %s of its own: see subctl cable-policy list "+
		"--broker",
		n, map[bool]string{true: "policy", false: "policies"}[n == 1])
}

func policyColumns() []printer.Column[catalog.Rule] {
	return []printer.Column[catalog.Rule]{
		{Head: "POLICY", Cell: func(r catalog.Rule) string { return r.Policy }},
		{Head: "RULE", Cell: func(r catalog.Rule) string { return strconv.Itoa(r.Rule) }},
		{Head: "LEFT", Cell: func(r catalog.Rule) string { return r.Left }},
		{Head: "RIGHT", Cell: func(r catalog.Rule) string { return r.Right }},
		{Head: "CABLE DRIVER", Cell: func(r catalog.Rule) string { return r.CableDriver }},
		{Head: "SETTINGS", Wide: true, Cell: func(r catalog.Rule) string {
			return strings.Join(slices.Collect(strings.SplitSeq(strings.TrimSpace(r.Settings), "\n")), "; ")
		}},
		{Head: "ENCRYPTION", Wide: true, Cell: func(r catalog.Rule) string { return r.Encryption }},
		{Head: "CONFIG MAP", Wide: true, Cell: func(r catalog.Rule) string { return r.ConfigMap }},
		{Head: "MADE BY", Cell: func(r catalog.Rule) string { return catalog.MakerName(r.MadeBy) }},
		{Head: "CLUSTERSETS", Max: 30, Cell: func(r catalog.Rule) string { return strings.Join(r.ClusterSets, ", ") }},
		{Head: "STATE", Cell: func(r catalog.Rule) string { return r.State }},
		{Head: "DECIDES", Max: 60, Cell: decidedText},
	}
}

// decidedText returns the pairs that a rule decides, and the pairs for which it is set aside.
func decidedText(r catalog.Rule) string {
	text := "no pair"
	if len(r.Pairs) > 0 {
		text = pairsText(r.Pairs)
	}
	if len(r.SetAside) > 0 {
		text += "; set aside on " + pairsText(r.SetAside)
	}
	return text
}

// pairsText returns pairs with their number.
func pairsText(pairs [][2]string) string {
	return fmt.Sprintf("%s: %s", words.Count(len(pairs), "pair"), strings.Join(pairNames(pairs), ", "))
}

func pairNames(pairs [][2]string) []string {
	var names []string
	for _, p := range pairs {
		names = append(names, p[0]+" - "+p[1])
	}
	return names
}
