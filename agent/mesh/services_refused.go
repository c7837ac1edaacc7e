package mesh

import "subctl/services"

// RefusedServices returns which export records of other clusters, or parts of them, the cluster of
// a snapshot does not import. It is for commands, as refusals are stored nowhere. The snapshot
// needs only the EndpointSlices of imports.
func RefusedServices(s Snapshot) []services.Refusal {
	p, err := planServices(s)
	d, is := p.Decisions.(*ServicePlan)
	if err != nil || !is {
		return nil // the agent plans nothing, either, and reports why
	}
	return d.imported.Refused
}
