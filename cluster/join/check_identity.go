package join

import (
	"errors"
	"fmt"

	"subctl/broker"
	"subctl/cluster"
)

// JoinedAs returns an error if the cluster has joined with another ID than id. Nothing else is
// worth a message then: what is wrong with id, or with the cluster that has it, is of no interest.
func (f *Facts) JoinedAs(id string) error {
	sub := f.Submariner
	if sub == nil || !cluster.IsOurs(sub.Labels) || sub.DeletionTimestamp != nil || sub.Spec.ClusterID == id {
		return nil
	}
	return fmt.Errorf("this cluster is joined as %q: to change it, join with --clusterid %s; to give it another ID, "+
		"first take it out of the network with subctl uninstall",
		sub.Spec.ClusterID, sub.Spec.ClusterID)
}

// checkIdentity refuses a cluster ID that another cluster has claimed, a join file of
// another broker, and a cluster that has joined in another way.
func checkIdentity(r request) ([]string, error) {
	var errs []error
	f := r.member
	b := r.broker
	if b.Holder != nil && !b.holds(f.UID) {
		errs = append(errs,
			&broker.TakenError{ClusterID: r.ClusterID, Namespace: b.Namespace, Since: b.Holder.CreationTimestamp.Time})
	}
	if want := b.Broker.Annotations[broker.PSKFingerprintAnnotation]; want != "" &&
		want != broker.Fingerprint(r.file.PSK) {
		errs = append(
			errs,
			errors.New(
				"the pre-shared key in the join file is not the key of the other clusters: the file is outdated; create a new one with subctl deploy-broker"),
		)
	}
	if ns := f.Namespace; ns != nil && ns.DeletionTimestamp != nil {
		errs = append(errs, fmt.Errorf("namespace %s is being deleted: wait until it is deleted (subctl uninstall "+
			"prints what holds it)", ns.Name))
	}
	sub := f.Submariner
	if sub == nil {
		return nil, errors.Join(errs...)
	}
	switch {
	case !cluster.IsOurs(sub.Labels):
		errs = append(
			errs,
			fmt.Errorf(
				"this cluster was not joined by subctl (Submariner %s/%s has no label %s=%s): first uninstall it with the tool that joined it",
				sub.Namespace, sub.Name, cluster.ManagedByLabel, cluster.ManagedBy),
		)
	case sub.DeletionTimestamp != nil:
		errs = append(errs, errors.New("this cluster is being uninstalled: finish with subctl uninstall"))
	case sub.Spec.BrokerK8sApiServer != withoutScheme(r.file.BrokerURL) && !b.holds(f.UID):
		// If the broker knows this cluster, it is the same broker at another address.
		errs = append(
			errs,
			fmt.Errorf("this cluster is joined to another broker, at %s: run subctl uninstall first",
				sub.Spec.BrokerK8sApiServer),
		)
	}
	return nil, errors.Join(errs...)
}
