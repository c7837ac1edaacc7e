package cmd

import (
	"context"
	"fmt"
	"strings"

	"subctl/internal/printer"
	"subctl/sdewan/view"
)

func (o *sdewanTable) status(ctx context.Context) error {
	c, v, err := o.read(ctx)
	if err != nil {
		return err
	}
	if err := v.ReadStatuses(ctx, c, o.namespace); err != nil {
		return o.remedy(err)
	}
	problems, err := controllerProblems(ctx, c)
	if err != nil {
		return err
	}
	rows := v.PodStatuses()
	if len(rows) == 0 {
		o.progress().Done("there are no reports of CNFs%s", o.where())
	}
	for _, r := range rows {
		for _, p := range r.Problems {
			// a line each, whatever the pod answers
			problems = append(problems, printer.Clean(fmt.Sprintf("pod %s/%s: %s", r.Namespace, r.Pod, p)))
		}
	}
	err = printer.Print(o.Out, o.format.Format(), rows, []printer.Column[view.PodStatus]{
		{
			Head:   "NAMESPACE",
			Wide:   true,
			Unless: func([]view.PodStatus) bool { return o.all },
			Cell:   func(r view.PodStatus) string { return r.Namespace },
		},
		{Head: "PURPOSE", Max: 30, Cell: func(r view.PodStatus) string { return r.Purpose }},
		{Head: "POD", Max: 50, Cell: func(r view.PodStatus) string { return r.Pod }},
		{Head: "NODE", Wide: true, Cell: func(r view.PodStatus) string { return r.Node }},
		{Head: "UPLINKS", Max: 60, Cell: func(r view.PodStatus) string { return strings.Join(r.Uplinks, ", ") }},
		{Head: "TUNNELS", Max: 60, Cell: view.PodStatus.TunnelText},
		{Head: "IKE", Wide: true, Cell: view.PodStatus.IKEText},
		{
			Head: "VIRTUAL IPS",
			Wide: true,
			Cell: func(r view.PodStatus) string { return strings.Join(r.VirtualIPs, ", ") },
		},
		{Head: "LEASES", Wide: true, Cell: view.PodStatus.LeasesText},
		{Head: "CONNECTIONS", Cell: func(r view.PodStatus) string { return r.Number("conntrack", r.Connections) }},
		{Head: "ROUTES", Wide: true, Cell: func(r view.PodStatus) string { return r.Number("route", r.Routes) }},
		{
			Head: "NEIGHBOURS",
			Wide: true,
			Cell: func(r view.PodStatus) string { return r.Number("neighbour", r.Neighbours) },
		},
		{Head: "READ", Cell: func(r view.PodStatus) string { return r.Read }},
	})
	if err != nil {
		return err
	}
	return o.trouble(problems)
}
