package broker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/exchange"
	"subctl/globalnet"
	"subctl/internal/kube"
	"subctl/internal/words"
)

// State is the observed state of a broker. The zero State means that there is no broker.
type State struct {
	Broker *v1alpha1.Broker
	// Members are the cluster IDs in use, sorted.
	Members []string
	// Invited are the cluster IDs that the broker has an invitation of, used or not, sorted.
	Invited []string
	// Global are the global networks of members and invited clusters.
	Global globalnet.Record
}

// Look reads the state of the broker with the base namespace ns, without the global networks.
func Look(ctx context.Context, c client.Client, ns string) (State, error) {
	var s State
	b := &v1alpha1.Broker{}
	err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: v1alpha1.BrokerName}, b)
	switch {
	case kube.NotThere(err):
	case err != nil:
		return s, fmt.Errorf("reading Broker %s/%s: %w", ns, v1alpha1.BrokerName, err)
	default:
		s.Broker = b
	}
	accounts := &corev1.ServiceAccountList{}
	if err := c.List(ctx, accounts, client.InNamespace(ns)); err != nil {
		return s, fmt.Errorf("listing the members in namespace %s: %w", ns, err)
	}
	for _, sa := range accounts.Items {
		if id, ok := strings.CutPrefix(sa.Name, memberPrefix); ok {
			s.Members = append(s.Members, id)
		} else if id, ok := strings.CutPrefix(sa.Name, inviteePrefix); ok {
			s.Invited = append(s.Invited, id)
		}
	}
	slices.Sort(s.Invited)
	clusters := &submarinerv1.ClusterList{}
	err = c.List(ctx, clusters, client.InNamespace(ns))
	if err != nil && !kube.NotThere(err) {
		return s, fmt.Errorf("listing the Clusters in namespace %s: %w", ns, err)
	}
	for _, cluster := range clusters.Items {
		if !exchange.IsRemoved(&cluster) {
			s.Members = append(s.Members, cluster.Name)
		}
	}
	slices.Sort(s.Members)
	s.Members = slices.Compact(s.Members)
	return s, nil
}

// MemberPSK reads the pre-shared key that a joined cluster keeps in namespace ns.
func MemberPSK(ctx context.Context, c client.Client, ns string) (Secret, error) {
	secret := &corev1.Secret{}
	err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: PSKSecretName}, secret)
	if apierrors.IsNotFound(err) {
		return nil, errors.New("it is not joined")
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s/%s: %w", ns, PSKSecretName, err)
	}
	if len(secret.Data[PSKKey]) == 0 {
		return nil, fmt.Errorf("Secret %s/%s has no key %s", ns, PSKSecretName, PSKKey)
	}
	return secret.Data[PSKKey], nil
}

// annotation returns the value of an annotation of the broker, or "" if there is none.
func (s State) annotation(name string) string {
	if s.Broker == nil {
		return ""
	}
	return s.Broker.Annotations[name]
}

// LookGlobal is Look, with the global networks.
func LookGlobal(ctx context.Context, c client.Client, ns string, now time.Time) (State, error) {
	s, err := Look(ctx, c, ns)
	if err != nil || s.Broker == nil {
		return s, err
	}
	s.Global, err = GlobalNetworks(ctx, c, ns, now)
	return s, err
}

// CheckChange returns an error if a broker cannot be changed to o while clusters have global
// networks: then the range may only grow.
func (s State) CheckChange(o Options) error {
	if s.Broker == nil || !s.Broker.Spec.GlobalnetEnabled || len(s.Global) == 0 {
		return nil
	}
	var holders []string
	for _, e := range s.Global {
		holders = append(holders, e.ClusterID)
	}
	slices.Sort(holders)
	was, err := netip.ParsePrefix(s.Broker.Spec.GlobalnetCIDRRange)
	switch will := o.Globalnet.Range; {
	case !o.Globalnet.Enabled:
		return fmt.Errorf(
			"globalnet cannot be disabled while clusters have global networks (%s): join them again with --globalnet=false, or uninstall them first",
			words.List(holders))
	case err == nil && (will.Bits() > was.Bits() || !will.Contains(was.Addr())):
		return fmt.Errorf(
			"the globalnet range cannot become %v while clusters have networks of %v (%s): specify a range that contains it, or uninstall the clusters first",
			will, was, words.List(holders))
	}
	return nil
}

// WithoutGlobal returns the members that have no global network, sorted.
func (s State) WithoutGlobal() []string {
	return slices.DeleteFunc(slices.Clone(s.Members),
		func(id string) bool { return len(s.Global.Find(id).Networks) > 0 })
}

// MayHavePSK reports whether psk is the pre-shared key of a broker, or the broker's key is
// unknown.
func MayHavePSK(b *v1alpha1.Broker, psk Secret) bool {
	want := b.Annotations[PSKFingerprintAnnotation]
	return want == "" || want == Fingerprint(psk)
}
