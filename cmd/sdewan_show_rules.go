package cmd

import (
	"context"
	"fmt"

	"subctl/internal/printer"
	"subctl/internal/words"
	"subctl/sdewan"
	"subctl/sdewan/view"
)

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
	c, v, err := o.read(ctx)
	if err != nil {
		return err
	}
	problems, err := controllerProblems(ctx, c)
	if err != nil {
		return err
	}
	rows := []sdewanRule{}
	for _, r := range v.Rules {
		s := v.State(r)
		row := sdewanRule{
			r.GetNamespace(),
			view.KindName(r),
			r.GetName(),
			r.GetLabels()[sdewan.PurposeLabel],
			s.InSync,
			s.Version,
			s.Since,
			append([]string{}, s.Pods...),
			s.Reason,
			s.Message,
		}
		rows = append(rows, row)
		if !s.InSync {
			problems = append(problems, fmt.Sprintf("%s %s/%s: %s", row.Kind, row.Namespace, row.Name, s.Message))
		}
	}
	if len(rows) == 0 {
		o.progress().Done("there are no rules%s", o.where())
	}
	err = printer.Print(o.Out, o.format.Format(), rows, []printer.Column[sdewanRule]{
		{
			Head:   "NAMESPACE",
			Wide:   true,
			Unless: func(rows []sdewanRule) bool { return o.all },
			Cell:   func(r sdewanRule) string { return r.Namespace },
		},
		{Head: "KIND", Cell: func(r sdewanRule) string { return r.Kind }},
		{Head: "NAME", Max: 40, Cell: func(r sdewanRule) string { return r.Name }},
		{Head: "PURPOSE", Max: 30, Cell: func(r sdewanRule) string { return r.Purpose }},
		{Head: "IN SYNC", Cell: func(r sdewanRule) string { return yes(r.InSync) }},
		{Head: "VERSION", Cell: func(r sdewanRule) string { return r.AppliedVersion }},
		{Head: "SINCE", Cell: func(r sdewanRule) string { return r.AppliedTime }},
		{Head: "READY PODS", Max: 40, Cell: func(r sdewanRule) string { return words.List(r.Pods) }},
		{Head: "REASON", Cell: func(r sdewanRule) string { return r.Reason }},
	})
	if err != nil {
		return err
	}
	return o.trouble(problems)
}
