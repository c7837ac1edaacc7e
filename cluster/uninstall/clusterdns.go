package uninstall

import (
	"context"

	"subctl/cluster/clusterdns"
	"subctl/services"
)

// hasDNS reports whether join has changed the cluster's DNS.
func (r *Remains) hasDNS() bool {
	return r.Submariner != nil && r.Submariner.Annotations[clusterdns.Annotation] != ""
}

// clusterDNS undoes the change of the cluster's DNS, while the DNS servers of subctl still answer.
// The block of subctl goes in any case, also where no Submariner object records it.
func (u *Operation) clusterDNS(ctx context.Context, r *Remains) error {
	settings := clusterdns.Settings{Version: u.Cluster.Version}
	if r.Submariner != nil {
		settings.Ref = r.Submariner.Spec.CoreDNSCustomConfig
	}
	h, err := clusterdns.Remove(ctx, u.Cluster, settings)
	if err != nil {
		return err
	}
	if lines := h.Removed(); len(lines) > 0 {
		u.Report.List("the cluster's DNS no longer forwards "+services.Domain+":", lines)
	}
	if h.Reason != "" && (r.hasDNS() || h.Kind != clusterdns.Unmanaged) {
		u.Report.Warn("the cluster's DNS still forwards %s, and answers names in it with an error: %s\n%s",
			services.Domain, h.Reason, h.Commands)
	}
	for _, note := range h.Notes {
		u.Report.Warn("%s", note)
	}
	return nil
}
