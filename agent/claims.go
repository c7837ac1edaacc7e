package agent

import (
	"context"
	"fmt"
	"maps"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
)

// takeOver has an agent that has just started go on from what this cluster's gateways
// report: whose claims stood until now, and what carries the traffic.
func (a *agent) takeOver(ctx context.Context, now time.Time) error {
	if a.held != nil {
		return nil
	}
	var list submarinerv1.GatewayList
	if err := a.reports.List(ctx, &list, client.InNamespace(submarinerv1.OperatorNamespace)); err != nil {
		return fmt.Errorf("reading what the gateways are connected to: %w", err)
	}
	var reports []*submarinerv1.Gateway
	a.using = map[string]Using{}
	for i := range list.Items {
		g := &list.Items[i]
		reports = append(reports, g)
		if a.gateway == nil || g.Name == a.Name { // a gateway's cables are its own
			maps.Copy(a.using, usingFromReport(g, now))
		}
	}
	a.held = heldFromReports(reports)
	return nil
}

// remember is how one plan's claims get to the next. A snapshot that could not be
// understood changes nothing.
func (a *agent) remember(p Plan) {
	if p.view != nil {
		a.held = append([]cable.Gateway{}, p.view.held...)
	}
}

// heldFromReports are the gateways of other clusters to which gateways report a cable, or
// which one they would have.
func heldFromReports(reports []*submarinerv1.Gateway) []cable.Gateway {
	held := []cable.Gateway{}
	for _, r := range reports {
		for _, c := range r.Status.Connections {
			if g, err := cable.Parse(c.Endpoint); err == nil && c.Driver != "" {
				held = append(held, g)
			}
		}
	}
	return held
}
