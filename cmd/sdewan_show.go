package cmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"subctl/internal/cli"
	"subctl/internal/printer"
	"subctl/internal/words"
	"subctl/sdewan/view"
)

const sdewanShowLong = `Show CNFs and rules.

The exit code is 0 if there is no problem, 1 if the cluster could not be read, and 3 if
something is not in sync, or a CNF does not work, which stderr describes.`

func newSdewanShow(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "show",
		Short: "Show CNFs and rules, and whether they are in sync",
		Long:  sdewanShowLong,
		Args:  cli.NoSuchCommand,
	}
	c.AddCommand(
		newSdewanTable(g, "rules", "Show rules, and whether all pods of their CNFs have them",
			"A rule is in sync if all pods of its CNF have its current version.\n\nThe exit code is 3 if a rule is not in sync; stderr has the reason.", (*sdewanTable).rules),
		newSdewanTable(g, "cnfs", "Show CNFs, their pods, networks and rules",
			"The exit code is 3 if pods of a CNF are not ready, or rules not in sync.", (*sdewanTable).cnfs),
		newSdewanTable(g, "status", "Show what CNFs do: uplinks, tunnels and connections",
			"The controller asks the pods of each CNF every few seconds. With -o json, the output has everything\nthat they have answered.\n\nThe exit code is 3 if a pod did not answer, an uplink is offline or a tunnel is down.", (*sdewanTable).status),
	)
	return c
}

// sdewanTable are the options of a table of sdewan show.
type sdewanTable struct {
	sdewanLook
	format *printer.Flag
}

func newSdewanTable(g *globals, noun, short, long string, show func(*sdewanTable, context.Context) error) *cobra.Command {
	o := &sdewanTable{sdewanLook: sdewanLook{globals: g}}
	c := &cobra.Command{
		Use: noun, Short: short, Long: short + ".\n\n" + long,
		Example: fmt.Sprintf("  subctl sdewan show %[1]s\n  subctl sdewan show %[1]s -A -o json", noun),
		Args:    cli.NoArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return show(o, c.Context()) },
	}
	o.addFlags(c)
	c.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "show all namespaces")
	cli.Before(c, func() error {
		if o.all && c.Flags().Changed("namespace") {
			return fmt.Errorf("--namespace and --all-namespaces both choose the namespaces: set only one of them")
		}
		return nil
	})
	o.format = cli.Output(c, printer.Table, printer.Wide, printer.JSON, printer.YAML)
	return c
}

// sdewanRule is a rule; its JSON is a promise.
type sdewanRule struct {
	Namespace      string   `json:"namespace"`
	Kind           string   `json:"kind"`
	Name           string   `json:"name"`
	Purpose        string   `json:"purpose"`
	InSync         bool     `json:"inSync"`
	AppliedVersion string   `json:"appliedVersion,omitempty"`
	AppliedTime    string   `json:"appliedTime,omitempty"`
	Pods           []string `json:"pods"` // ready pods of its CNF
	Reason         string   `json:"reason,omitempty"`
	Message        string   `json:"message,omitempty"`
}

func (o *sdewanTable) rules(ctx context.Context) error {
	_, v, err := o.read(ctx)
	if err != nil {
		return err
	}
	rows, problems := []sdewanRule{}, []string(nil)
	for _, r := range v.Rules {
		s := v.State(r)
		row := sdewanRule{r.GetNamespace(), view.KindName(r), r.GetName(), r.GetLabels()["sdewanPurpose"], s.InSync, s.Version, s.Since, append([]string{}, s.Pods...), s.Reason, s.Message}
		rows = append(rows, row)
		if !s.InSync {
			problems = append(problems, fmt.Sprintf("%s %s/%s: %s", row.Kind, row.Namespace, row.Name, s.Message))
		}
	}
	if len(rows) == 0 {
		o.progress().Done("there are no rules%s", o.where())
	}
	err = printer.Print(o.Out, o.format.Format(), rows, []printer.Column[sdewanRule]{
		{Head: "NAMESPACE", Wide: true, Unless: func(rows []sdewanRule) bool { return o.all }, Cell: func(r sdewanRule) string { return r.Namespace }},
		{Head: "KIND", Cell: func(r sdewanRule) string { return r.Kind }},
		{Head: "NAME", Max: 40, Cell: func(r sdewanRule) string { return r.Name }},
		{Head: "PURPOSE", Max: 30, Cell: func(r sdewanRule) string { return r.Purpose }},
		{Head: "IN SYNC", Cell: func(r sdewanRule) string { return yes(r.InSync) }},
		{Head: "VERSION", Cell: func(r sdewanRule) string { return r.AppliedVersion }},
		{Head: "SINCE", Cell: func(r sdewanRule) string { return r.AppliedTime }},
		{Head: "PODS", Max: 40, Cell: func(r sdewanRule) string { return words.List(r.Pods) }},
		{Head: "REASON", Cell: func(r sdewanRule) string { return r.Reason }},
	})
	if err != nil {
		return err
	}
	return o.trouble(problems)
}

// sdewanCNF is a CNF; its JSON is a promise.
type sdewanCNF struct {
	Namespace  string   `json:"namespace"`
	Purpose    string   `json:"purpose"`
	Deployment string   `json:"deployment"`
	Pods       []string `json:"pods"`
	Ready      []string `json:"ready"`
	Networks   []string `json:"networks"` // NAME=DEVICE
	Rules      int      `json:"rules"`
	InSync     int      `json:"inSync"` // rules that are
	Problems   []string `json:"problems"`
}

func (o *sdewanTable) cnfs(ctx context.Context) error {
	_, v, err := o.read(ctx)
	if err != nil {
		return err
	}
	rows, problems := []sdewanCNF{}, []string(nil)
	for _, c := range v.CNFs {
		row := sdewanCNF{
			Namespace: c.Deployment.Namespace, Purpose: c.Purpose(), Deployment: c.Deployment.Name,
			Pods: namesOf(c.Pods), Ready: append([]string{}, c.Ready()...), Networks: []string{}, Problems: append([]string{}, v.Problems(c)...),
		}
		row.Networks = append(row.Networks, c.Networks()...)
		for _, r := range v.RulesOf(c) {
			row.Rules++
			if v.State(r).InSync {
				row.InSync++
			}
		}
		if row.InSync < row.Rules {
			row.Problems = append(row.Problems, fmt.Sprintf("%d of %s are not in sync: see subctl sdewan show rules", row.Rules-row.InSync, words.Count(row.Rules, "rule")))
		}
		for _, p := range row.Problems {
			problems = append(problems, fmt.Sprintf("CNF %s/%s: %s", row.Namespace, row.Purpose, p))
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		o.progress().Done("there are no CNFs%s: no Deployment has the label sdewanPurpose", o.where())
	}
	err = printer.Print(o.Out, o.format.Format(), rows, []printer.Column[sdewanCNF]{
		{Head: "NAMESPACE", Wide: true, Unless: func([]sdewanCNF) bool { return o.all }, Cell: func(r sdewanCNF) string { return r.Namespace }},
		{Head: "PURPOSE", Max: 30, Cell: func(r sdewanCNF) string { return r.Purpose }},
		{Head: "DEPLOYMENT", Max: 30, Cell: func(r sdewanCNF) string { return r.Deployment }},
		{Head: "READY", Cell: func(r sdewanCNF) string { return fmt.Sprintf("%d/%d", len(r.Ready), len(r.Pods)) }},
		{Head: "RULES IN SYNC", Cell: func(r sdewanCNF) string { return fmt.Sprintf("%d/%d", r.InSync, r.Rules) }},
		{Head: "NETWORKS", Max: 60, Cell: func(r sdewanCNF) string { return strings.Join(r.Networks, " ") }},
	})
	if err != nil {
		return err
	}
	return o.trouble(problems)
}

func (o *sdewanTable) status(ctx context.Context) error {
	c, v, err := o.read(ctx)
	if err != nil {
		return err
	}
	if err := v.ReadStatuses(ctx, c, o.namespace); err != nil {
		return err
	}
	rows := v.PodStatuses()
	if len(rows) == 0 {
		o.progress().Done("there are no reports of CNFs%s", o.where())
	}
	var problems []string
	for _, r := range rows {
		for _, p := range r.Problems {
			problems = append(problems, fmt.Sprintf("pod %s/%s: %s", r.Namespace, r.Pod, p))
		}
	}
	err = printer.Print(o.Out, o.format.Format(), rows, []printer.Column[view.PodStatus]{
		{Head: "NAMESPACE", Wide: true, Unless: func([]view.PodStatus) bool { return o.all }, Cell: func(r view.PodStatus) string { return r.Namespace }},
		{Head: "PURPOSE", Max: 30, Cell: func(r view.PodStatus) string { return r.Purpose }},
		{Head: "POD", Max: 50, Cell: func(r view.PodStatus) string { return r.Pod }},
		{Head: "NODE", Wide: true, Cell: func(r view.PodStatus) string { return r.Node }},
		{Head: "UPLINKS", Max: 60, Cell: func(r view.PodStatus) string { return strings.Join(r.Uplinks, ", ") }},
		{Head: "TUNNELS", Max: 60, Cell: func(r view.PodStatus) string { return strings.Join(r.Tunnels, ", ") }},
		{Head: "CONNECTIONS", Cell: func(r view.PodStatus) string { return fmt.Sprint(r.Connections) }},
		{Head: "ROUTES", Wide: true, Cell: func(r view.PodStatus) string { return fmt.Sprint(r.Routes) }},
		{Head: "READ", Cell: func(r view.PodStatus) string { return r.Read }},
	})
	if err != nil {
		return err
	}
	return o.trouble(problems)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
