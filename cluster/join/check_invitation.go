package join

import (
	"errors"
	"fmt"
	"strings"

	"subctl/broker"
	"subctl/broker/trust"
	"subctl/cable"
)

const anotherFile = "ask the administrator of the broker for another file (subctl invite)"

// Invited returns an error if a join file is for another cluster: its credentials have no rights
// for this one, so the broker need not be asked.
func (o Options) Invited(file *broker.JoinFile) error {
	i, err := file.Invited()
	if err != nil {
		return fmt.Errorf("the join file %w", err)
	}
	if i != nil && i.Cluster != o.ClusterID {
		return fmt.Errorf("the join file is for cluster %q, not %q: join with --clusterid %[1]s, or %[3]s", i.Cluster,
			o.ClusterID, anotherFile)
	}
	return nil
}

// checkInvitation refuses what the invitation in a join file for one cluster does not cover. That
// it has not expired was checked when the file was read.
func checkInvitation(r request) ([]string, error) {
	i, err := r.file.Invited()
	if err != nil {
		return nil, fmt.Errorf("the join file %w", err)
	}
	if i == nil {
		return nil, nil
	}
	errs := []error{r.Invited(r.file)}
	g := r.grant()
	for _, n := range g.Networks {
		if !i.Allows(n) {
			errs = append(
				errs,
				fmt.Errorf(
					"the join file allows the networks %s, and %s is not within them: specify the right networks with "+
						"--clustercidr and --servicecidr, or %s",
					cable.FormatCIDRs(i.Networks),
					n,
					anotherFile,
				),
			)
		}
	}
	if n := r.gatewayCount(); n > i.Gateways {
		errs = append(
			errs,
			fmt.Errorf(
				"the join file allows %d gateway nodes, and this cluster would have %d: specify fewer with --gateways or --gateway-nodes, "+
					"remove labels from nodes, or %s",
				i.Gateways,
				n,
				anotherFile,
			),
		)
	}
	if err := i.CoversExports(g.ExportNamespaces); err != nil {
		errs = append(errs, fmt.Errorf("%w: specify others with --export-namespaces, or %s", err, anotherFile))
	}
	for _, set := range g.Sets {
		if !i.IsFor(set) {
			errs = append(
				errs,
				fmt.Errorf("the join file is for clusterset %s, not %s: specify it with --clusterset, or %s",
					strings.Join(i.Sets, ", "), set, anotherFile),
			)
		}
	}
	for _, set := range g.Sets {
		if at := r.revoked(set); at > 0 && at >= i.Serial {
			errs = append(
				errs,
				fmt.Errorf(
					"the administrator of the broker has removed cluster %s from clusterset %s at %s, after the join file was written: %s",
					r.ClusterID, set, trust.Stamp(at), anotherFile),
			)
		}
	}
	if t := r.member.Trust; t != nil && len(r.granted(g)) > 0 {
		errs = append(errs, notOlder(trust.Grant{Serial: i.Expires, Invited: i.Serial}, r.lastGrant()))
	}
	return nil, errors.Join(errs...)
}

// notOlder returns an error if a grant would not be newer than the grant that the cluster has,
// which may be zero: the other clusters would refuse it.
func notOlder(g, before trust.Grant) error {
	if g.Compare(before) > 0 {
		return nil
	}
	return fmt.Errorf(
		"the join file is of %s, and this cluster has a later grant, of %s, so that the other clusters would refuse a grant of the file: "+
			anotherFile,
		trust.Stamp(g.Authority()),
		trust.Stamp(before.Authority()),
	)
}
