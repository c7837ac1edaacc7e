package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/globalnet"
	"subctl/internal/kube"
	"subctl/internal/wake"
)

// This file keeps the record of global networks: ConfigMap globalnet.ConfigMapName in the base
// namespace, so that the networks are unique over all clustersets. Only the administrator and the
// holders of general join files may read and write it; members may not. See
// docs/adr/0030-global-networks.md.
//
// All networks are in one object, which is written only if nobody else has written it since it was
// read. So no two clusters can get the same network.
//
// Nobody has to release a network: an entry counts while the service account is there for which it
// was made. Uninstalling deletes that account, and so does the administrator's revocation.

// GlobalnetClusterSize returns the number of addresses in the network of a cluster that does not
// specify it, on a broker with globalnet.
func GlobalnetClusterSize(b *v1alpha1.Broker) uint {
	return cmp.Or(b.Spec.DefaultGlobalnetClusterSize, globalnet.DefaultClusterSize)
}

// GlobalnetInfo returns the globalnet settings of a broker; zero without globalnet.
func GlobalnetInfo(b *v1alpha1.Broker) (globalnet.Info, error) {
	if !b.Spec.GlobalnetEnabled {
		return globalnet.Info{}, nil
	}
	info, err := globalnet.Parse(b.Spec.GlobalnetCIDRRange, GlobalnetClusterSize(b))
	if err != nil {
		return info, fmt.Errorf(
			"Broker %s/%s: %w: correct it with subctl deploy-broker --globalnet --globalnet-cidr-range", b.Namespace,
			b.Name, err)
	}
	return info, nil
}

// graceOfInvitation is the time for which the network of an invitation stays reserved after the
// invitation has expired: the clocks of the machines differ.
const graceOfInvitation = time.Hour

// GlobalNetworks returns the global networks of the members of a broker, and of the clusters that
// are invited to it.
func GlobalNetworks(ctx context.Context, c client.Reader, base string, now time.Time) (globalnet.Record, error) {
	_, record, err := readNetworks(ctx, c, base, now)
	return record, err
}

// readNetworks returns the record, and the ConfigMap that holds it; nil if there is none.
//
// The ConfigMap is read first: an entry that was written since for a new account makes the write of
// who has not seen that account fail.
func readNetworks(
	ctx context.Context,
	c client.Reader,
	base string,
	now time.Time,
) (*corev1.ConfigMap, globalnet.Record, error) {
	info, err := kube.Optional(ctx, c, &corev1.ConfigMap{},
		client.ObjectKey{Namespace: base, Name: globalnet.ConfigMapName})
	if err != nil || info == nil {
		return nil, nil, err
	}
	all, err := globalnet.ParseRecord(info.Data[globalnet.ClusterInfoKey])
	if err != nil {
		return nil, nil, fmt.Errorf(
			"key %s of ConfigMap %s/%s on the broker: %w: let the administrator of the broker correct it",
			globalnet.ClusterInfoKey, base, globalnet.ConfigMapName, err)
	}
	accounts := &corev1.ServiceAccountList{}
	if err := c.List(ctx, accounts, client.InNamespace(base)); err != nil {
		return nil, nil, fmt.Errorf("listing which clusters have global networks: %w", err)
	}
	uids := map[string]types.UID{}
	for _, sa := range accounts.Items {
		uids[sa.Name] = sa.UID
	}
	return info, slices.DeleteFunc(all, func(e globalnet.Entry) bool { return !counts(e, uids, now) }), nil
}

// counts reports whether an entry is in force. accounts are the UIDs of the service accounts, by
// name.
func counts(e globalnet.Entry, accounts map[string]types.UID, now time.Time) bool {
	member, isMember := accounts[MemberName(e.ClusterID)]
	switch {
	case e.Account == "": // somebody else has written it
		return true
	case e.Expires == 0:
		return string(member) == e.Account
	case isMember: // it has joined with the invitation
		return true
	}
	return string(accounts[InviteeName(e.ClusterID)]) == e.Account &&
		now.Before(time.UnixMilli(e.Expires).Add(graceOfInvitation))
}

// NetworkRequest is the network that a cluster requests, and the account for which it requests it:
// see globalnet.Entry.
type NetworkRequest struct {
	globalnet.NetworkRequest
	Account types.UID
	Expires int64
}

// ReserveNetwork records a network for a cluster, and returns it. Whatever the cluster had before
// stays recorded until SettleNetwork: it is used until its agents have changed. It may be repeated.
func ReserveNetwork(
	ctx context.Context,
	c client.Client,
	base string,
	i globalnet.Info,
	r NetworkRequest,
	now time.Time,
) (chosen netip.Prefix, err error) {
	var all []netip.Prefix
	err = changeNetworks(ctx, c, base, now, func(record globalnet.Record) (globalnet.Record, error) {
		if chosen, err = i.Choose(r.NetworkRequest, record); err != nil {
			return nil, err
		}
		had := slices.DeleteFunc(slices.Clone(record.Find(r.Cluster).Networks),
			func(n netip.Prefix) bool { return n == chosen })
		all = append([]netip.Prefix{chosen}, had...)
		return record.With(
			globalnet.Entry{ClusterID: r.Cluster, Networks: all, Account: string(r.Account), Expires: r.Expires}), nil
	})
	if err == nil && r.Expires == 0 {
		err = LetAnnounce(ctx, c, base, r.Cluster, all...)
	}
	return chosen, err
}

// SettleNetwork records that a cluster has only this global network; the zero Prefix: none.
func SettleNetwork(
	ctx context.Context,
	c client.Client,
	base, clusterID string,
	only netip.Prefix,
	now time.Time,
) error {
	// The right ends first: the network may be another cluster's as soon as it is not on record.
	if err := LetAnnounce(ctx, c, base, clusterID, only); err != nil {
		return err
	}
	return changeNetworks(ctx, c, base, now, func(record globalnet.Record) (globalnet.Record, error) {
		e := record.Find(clusterID)
		e.ClusterID = clusterID
		e.Networks = slices.DeleteFunc(slices.Clone(e.Networks), func(n netip.Prefix) bool { return n != only })
		return record.With(e), nil
	})
}

// changeNetworks changes the record. If somebody else changes it at the same time, change is called
// again with what they have written.
func changeNetworks(
	ctx context.Context,
	c client.Client,
	base string,
	now time.Time,
	change func(globalnet.Record) (globalnet.Record, error),
) error {
	ctx, cancel := context.WithTimeoutCause(ctx, memberTimeout, errors.New("other clusters kept changing it"))
	defer cancel()
	for {
		info, record, err := readNetworks(ctx, c, base, now)
		if err != nil {
			return err
		}
		if info == nil {
			return fmt.Errorf("the broker has no ConfigMap %s/%s: let its administrator run subctl deploy-broker again",
				base, globalnet.ConfigMapName)
		}
		if record, err = change(record); err != nil {
			return err
		}
		text, err := record.Format()
		if err != nil {
			return fmt.Errorf("encoding the global networks: %w", err)
		}
		if text == info.Data[globalnet.ClusterInfoKey] {
			return nil
		}
		if info.Data == nil {
			info.Data = map[string]string{}
		}
		info.Data[globalnet.ClusterInfoKey] = text
		switch err = c.Update(ctx, info, client.FieldOwner(kube.FieldOwner)); {
		case err == nil:
			return nil
		case !apierrors.IsConflict(err):
			return fmt.Errorf("recording the global network on the broker: %w", err)
		}
		if late := wake.After(ctx, time.Duration(rand.Int64N(int64(100*time.Millisecond)))); late != nil {
			return fmt.Errorf("recording the global network on the broker: %w", errors.Join(late, err))
		}
	}
}

// LetAnnounce gives a member the right to announce these global networks, and no others. Zero
// Prefixes do not count.
func LetAnnounce(ctx context.Context, c client.Client, base, clusterID string, networks ...netip.Prefix) error {
	if err := setRules(ctx, c, selfRole(base, clusterID, announced(networks)...)); err != nil {
		return fmt.Errorf("letting cluster %s announce its global network on the broker: %w", clusterID, err)
	}
	return nil
}

// announced returns the names of global networks in the right to announce them.
func announced(networks []netip.Prefix) (names []string) {
	for _, n := range networks {
		if n.IsValid() && len(names) < globalnet.MaxNetworks {
			names = append(names, n.String())
		}
	}
	return names
}

// setRules gives a Role that exists the rules of another one.
func setRules(ctx context.Context, c client.Client, want *rbacv1.Role) error {
	return kube.Settled(func() error {
		role := &rbacv1.Role{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(want), role); err != nil {
			return err
		}
		was := role.DeepCopy()
		role.Rules = want.Rules
		if equality.Semantic.DeepEqual(role.Rules, was.Rules) {
			return nil
		}
		return c.Patch(ctx, role, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}),
			client.FieldOwner(kube.FieldOwner))
	})
}

// LetAllAnnounce gives all members, and all invitations, the right to announce the global networks
// that the record has for their clusters. Invitations lose the right to any other network.
func LetAllAnnounce(ctx context.Context, c client.Client, base string, now time.Time) error {
	record, err := GlobalNetworks(ctx, c, base, now)
	if err != nil {
		return err
	}
	state, err := Look(ctx, c, base)
	if err != nil {
		return err
	}
	members := kube.ForEach(record, func(_ int, e globalnet.Entry) error {
		return client.IgnoreNotFound(LetAnnounce(ctx, c, base, e.ClusterID, e.Networks...)) // it has not joined yet
	})
	invited := kube.ForEach(state.Invited, func(_ int, id string) error {
		if err := setRules(ctx, c,
			identityRole(base, id, announced(record.Find(id).Networks)...)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("letting the invited cluster %s announce its global network on the broker: %w", id, err)
		}
		return nil // or the invitation is being replaced
	})
	return errors.Join(members, invited)
}
