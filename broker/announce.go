package broker

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/internal/kube"
)

// This file tells members that the clusters of one of their clustersets have changed. A member in
// many clustersets does not watch all of them (see broker/exchange/rounds.go), but it watches its
// service account, which no other member can read.

// mostAnnounced is the number of members of a clusterset above which only those are told whose
// grants show that they do not watch all of their clustersets: a cluster watches the clustersets
// with the most members.
const mostAnnounced = 50

// announce tells the members of clustersets that do not watch all of theirs. It is only a hint: a
// member that does not get it reads the clusterset some seconds later, so errors are ignored.
func announce(
	ctx context.Context,
	c client.Client,
	base string,
	sets []string,
	administrator trust.PublicKey,
	now time.Time,
) {
	all := &corev1.ServiceAccountList{}
	if c.List(ctx, all, client.InNamespace(base)) != nil {
		return
	}
	accounts := map[string]*corev1.ServiceAccount{}
	for i, sa := range all.Items {
		accounts[sa.Name] = &all.Items[i]
	}
	_ = kube.ForEach(sets, func(_ int, set string) error {
		members, err := membersOf(ctx, c, NamespaceIn(base, set))
		if err != nil {
			return nil
		}
		for _, id := range members {
			sa := accounts[MemberName(id)].DeepCopy()
			if sa == nil {
				continue
			}
			if token := sa.Annotations[submarinerv1.GrantAnnotation]; token != "" {
				grant, err := administrator.Grant(token)
				if err != nil || len(grant.Sets) <= exchange.MostWatched() {
					continue
				}
			} else if len(members) > mostAnnounced {
				continue // only the member knows its grant
			}
			was := sa.DeepCopy()
			metav1.SetMetaDataAnnotation(&sa.ObjectMeta, submarinerv1.ChangedAnnotation,
				fmt.Sprintf("%s %d", set, now.UnixMilli()))
			_ = c.Patch(ctx, sa, client.MergeFrom(was), client.FieldOwner(kube.FieldOwner))
		}
		return nil
	})
}
