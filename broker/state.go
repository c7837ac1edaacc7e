package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/exchange"
	"subctl/internal/kube"
)

// State is the observed state of a broker. The zero State means that there is no broker.
type State struct {
	Broker *v1alpha1.Broker
	// Members are the cluster IDs in use, sorted.
	Members []string
}

// Look reads the state of the broker with the base namespace ns.
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
		}
	}
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

// CheckChange returns an error if a broker cannot be changed to o while it has members.
func (s State) CheckChange(o Options) error {
	if s.Broker == nil || len(s.Members) == 0 {
		return nil
	}
	was, will := "off", "off"
	if s.Broker.Spec.GlobalnetEnabled {
		was = "on, with " + s.Broker.Spec.GlobalnetCIDRRange
	}
	if o.Globalnet.Enabled {
		will = "on, with " + o.Globalnet.Range.String()
	}
	if was != will {
		return fmt.Errorf("globalnet is %s, and cannot be %s while clusters are joined (%s): specify the flags that it was "+
			"deployed with, or uninstall the clusters first", was, will, strings.Join(s.Members, ", "))
	}
	return nil
}

// MayHavePSK reports whether psk is the pre-shared key of a broker, or the broker's key is
// unknown.
func MayHavePSK(b *v1alpha1.Broker, psk Secret) bool {
	want := b.Annotations[PSKFingerprintAnnotation]
	return want == "" || want == Fingerprint(psk)
}
