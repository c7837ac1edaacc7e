package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/broker"
	"subctl/cable/keys"
)

// Keys of ClusterKeySecret's data, which are file names in the gateway.
const (
	// KeyPrivate is the X25519 private key, 32 bytes as they are.
	KeyPrivate = "private"
	// KeyPublic is the public key in base64, as in Cluster.spec.public_key.
	KeyPublic = "public"
	// KeySeed is what the gateways' WireGuard keys are derived from, 32 random bytes.
	KeySeed = "seed"
)

// Secrets returns the Secrets of a member, which only its gateways mount: the
// credentials for the broker, the key that all clusters share, and the cluster's
// own key pair.
func Secrets(creds *broker.Credentials, psk broker.Secret, key keys.PrivateKey) []client.Object {
	return []client.Object{
		secret(BrokerSecret, map[string][]byte{
			corev1.ServiceAccountTokenKey: creds.Token, corev1.ServiceAccountRootCAKey: creds.CA,
		}),
		secret(PSKSecret, map[string][]byte{broker.PSKKey: psk}),
		secret(ClusterKeySecret, map[string][]byte{KeyPrivate: key.Bytes(), KeyPublic: []byte(key.Public().String())}),
	}
}

func secret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: ours("")},
		Type:       corev1.SecretTypeOpaque, Data: data,
	}
}

// clusterKey returns the cluster's key pair: the one it has, or a new one. A key
// that is there but unreadable is an error, not replaced: the other clusters
// derived their secrets from its public half.
func clusterKey(ctx context.Context, c client.Reader) (keys.PrivateKey, error) {
	stored := &corev1.Secret{}
	err := c.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: ClusterKeySecret}, stored)
	if apierrors.IsNotFound(err) {
		return keys.Generate()
	}
	if err != nil {
		return keys.PrivateKey{}, fmt.Errorf("reading Secret %s/%s: %w", Namespace, ClusterKeySecret, err)
	}
	key, err := keys.ParsePrivate(stored.Data[KeyPrivate])
	if err != nil {
		return keys.PrivateKey{}, fmt.Errorf("%w: repair Secret %s/%s, or delete it to make a new key", err, Namespace, ClusterKeySecret)
	}
	return key, nil
}
