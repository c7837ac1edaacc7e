package join

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/prefix"
)

// readTrust returns what the cluster signs and verifies with; nil if it has not joined. A Secret
// that cannot be read is not replaced, because with it the pinned key of the administrator would
// be.
func readTrust(ctx context.Context, c client.Reader) (*cluster.Trust, error) {
	stored, err := kube.Optional(ctx, c, &corev1.Secret{},
		client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.TrustSecret})
	if err != nil || stored == nil {
		return nil, err
	}
	t, err := cluster.ReadTrust(stored.Data)
	if err != nil {
		return nil, fmt.Errorf("%w: repair it, or delete it to trust the administrator of the join file from now on",
			err)
	}
	return &t, nil
}

// lastRevocation returns when the administrator of the join file has revoked the cluster, which has
// not published anything since, in milliseconds since 1970; 0 if it is not revoked. If set is not
// empty, it returns when the administrator has removed the cluster from this clusterset.
func (r request) lastRevocation(set string) (at int64) {
	for _, token := range r.broker.Revocations {
		if v, err := r.file.Administrator.Revocation(token); err == nil && v.Cluster == r.ClusterID && v.Set == set {
			at = max(at, v.Serial)
		}
	}
	return at
}

// lastRemoval returns when the administrator has last revoked the cluster, or removed it from one
// of the clustersets that it joins, in milliseconds since 1970; 0 if never. A grant that is not
// later is void.
func (r request) lastRemoval() (at int64) {
	for _, set := range slices.Concat(r.Sets(), []string{""}) {
		at = max(at, r.lastRevocation(set))
	}
	return at
}

// leaveGrant returns the grant with which a cluster with this ID has left, and not published
// anything since; zero if none has.
func (r request) leaveGrant() trust.Grant {
	l, err := r.file.Administrator.Leaving(r.broker.Leaving)
	if err != nil || l.Grant.Cluster != r.ClusterID {
		return trust.Grant{}
	}
	return l.Grant
}

// grant returns what the cluster is to be granted, without its key and the serial.
func (r request) grant() trust.Grant {
	networks := r.announcedNetworks()
	slices.SortFunc(networks, netip.Prefix.Compare)
	return trust.Grant{
		Cluster:          r.ClusterID,
		UID:              r.member.UID,
		Networks:         slices.Compact(networks),
		Gateways:         r.mostGateways(),
		Sets:             r.Sets(),
		ExportNamespaces: r.exportNamespaces(),
	}
}

// exportNamespaces returns the patterns of the namespaces from which the cluster may export
// Services. If nobody specifies any, they are those of the invitation.
func (r request) exportNamespaces() []string {
	patterns := r.ExportNamespaces
	if i, err := r.file.Invited(); err == nil && i != nil && len(patterns) == 0 { // checkInvitation reports an error
		patterns = i.ExportNamespaces
	}
	return trust.SortNamespaces(patterns)
}

// announcedNetworks returns the networks in which other clusters are to reach this one.
func (r request) announcedNetworks() []netip.Prefix {
	if r.globalErr == nil && r.global.IsValid() { // checkGlobalnet reports an error
		return []netip.Prefix{r.global}
	}
	pods, _, _ := r.podNetworks() // checkNetworks reports what is wrong
	services, _, _ := r.serviceNetworks()
	return slices.Concat(pods, services)
}

// mostGateways returns the number of gateways that the grant allows.
func (r request) mostGateways() int {
	if i, err := r.file.Invited(); err == nil && i != nil { // checkInvitation reports an error
		return i.Gateways
	}
	return trust.MaxGateways
}

// gatewayCount returns the number of gateway nodes that the cluster has once it has joined.
func (r request) gatewayCount() int {
	added, _, _ := r.gateways() // checkGateways reports what is wrong
	n := len(added)
	for _, node := range r.member.Nodes {
		if cluster.IsGateway(node) {
			n++
		}
	}
	return max(n, 1)
}

// lastGrant returns the newest grant of the cluster: the one with which it joined, or the one that
// the administrator has renewed since on the broker. It is zero if there is none for the key of the
// cluster.
func (r request) lastGrant() (newest trust.Grant) {
	t := r.member.Trust
	if t == nil {
		return newest
	}
	tokens := []string{t.Grant}
	if r.broker.Holder != nil {
		tokens = append(tokens, r.broker.Holder.Annotations[submarinerv1.GrantAnnotation])
	}
	for _, token := range tokens {
		if g, err := t.Administrator.Grant(token); err == nil && g.Key == t.Key.Public() && g.Compare(newest) > 0 {
			newest = g
		}
	}
	return newest
}

// grantChanges returns how a grant differs from the grant that the cluster has, except for the key
// and the serial. A grant that is not valid is replaced as a whole.
func (r request) grantChanges(will trust.Grant) []Change {
	was := map[string]string{}
	if g := r.lastGrant(); g.Serial > 0 {
		was = grantFields(g)
	}
	return diff(was, grantFields(will))
}

func grantFields(g trust.Grant) map[string]string {
	out := map[string]string{}
	flatten(out, "", map[string]any{
		"cluster": g.Cluster, "clusterUID": g.UID, "gateways": g.Gateways,
		"networks": prefix.Format(g.Networks), "clusterSets": texts(g.Sets),
		"exportNamespaces": texts(g.ExportNamespaces),
	})
	return out
}

func texts(list []string) []any {
	var out []any
	for _, s := range list {
		out = append(out, s)
	}
	return out
}

// trust returns what the cluster signs and verifies with once it has joined: its key and its grant
// stay if the grant is the planned one. A cluster that is a new member gets a new key and a new
// grant, because it may have been revoked: whoever has a copy of its earlier key cannot sign for it
// any more. So does a cluster that has left with the grant that it has.
func (j *Operation) trust(added bool, now time.Time) (cluster.Trust, error) {
	t := cluster.Trust{Administrator: j.File.Administrator}
	grant := j.Plan.Grant
	before := j.Plan.Left
	last := j.Plan.LastGrant
	var invited int64
	if i, err := j.File.Invited(); err == nil && i != nil { // SignGrant reports an error
		invited = max(1, i.Serial)
	}
	grant.Serial = max(before.Later(now.UnixMilli(), invited), invited) // the clock of who invited may be ahead
	if invited == 0 {
		grant.Serial = max(grant.Serial, j.Plan.Removed+1)
	}
	if stored := j.Plan.Trust; stored != nil {
		t = *stored
		if g, err := t.Administrator.Grant(t.Grant); err == nil && g.Compare(last) > 0 {
			last = g
		}
		hasLeft := j.Plan.Left.Serial > 0 && last.Compare(j.Plan.Left) <= 0
		if len(j.Plan.Granted) == 0 && !added && !hasLeft {
			return t, nil
		}
		if added = added || hasLeft; last.Serial > 0 && !hasLeft {
			grant.Serial = max(grant.Serial, last.Later(now.UnixMilli(), invited))
			before = last
		}
	}
	if added || t.Key.IsZero() {
		var err error
		if t.Key, err = trust.NewKey(); err != nil {
			return t, err
		}
	}
	grant.Key = t.Key.Public()
	var err error
	if t.Grant, err = j.File.SignGrant(grant); err == nil {
		grant, err = t.Administrator.Grant(t.Grant)
	}
	if err != nil {
		return t, fmt.Errorf("signing the grant of cluster %s with the key of the join file: %w", j.Plan.Grant.Cluster,
			err)
	}
	return t, notOlder(grant, before)
}
