package cmd

import (
	"context"
	"fmt"
	"strings"

	"subctl/internal/printer"
	"subctl/internal/words"
)

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
	c, v, err := o.read(ctx)
	if err != nil {
		return err
	}
	problems, err := controllerProblems(ctx, c)
	if err != nil {
		return err
	}
	rows := []sdewanCNF{}
	for _, c := range v.CNFs {
		row := sdewanCNF{
			Namespace:  c.Deployment.Namespace,
			Purpose:    c.Purpose(),
			Deployment: c.Deployment.Name,
			Pods:       namesOf(c.Pods),
			Ready:      append([]string{}, c.Ready()...),
			Networks:   []string{},
			Problems:   append([]string{}, v.Problems(c)...),
		}
		row.Networks = append(row.Networks, c.Networks()...)
		for _, r := range v.RulesOf(c) {
			row.Rules++
			if v.State(r).InSync {
				row.InSync++
			}
		}
		if row.InSync < row.Rules {
			row.Problems = append(
				row.Problems,
				fmt.Sprintf("%d of %s are not in sync: see subctl sdewan show rules", row.Rules-row.InSync,
					words.Count(row.Rules, "rule")),
			)
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
		{
			Head:   "NAMESPACE",
			Wide:   true,
			Unless: func([]sdewanCNF) bool { return o.all },
			Cell:   func(r sdewanCNF) string { return r.Namespace },
		},
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
