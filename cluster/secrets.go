package cluster

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
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

// ClusterKey is what a cluster alone knows, and its cables are encrypted with: see
// package keys.
type ClusterKey struct {
	Private keys.PrivateKey
	Seed    broker.Secret // keys.Size bytes
}

// newClusterKey makes both.
func newClusterKey() (ClusterKey, error) {
	private, err := keys.Generate()
	return ClusterKey{private, newSeed()}, err
}

func newSeed() broker.Secret {
	seed := make(broker.Secret, keys.Size)
	rand.Read(seed) // never fails
	return seed
}

// data is that of ClusterKeySecret.
func (k ClusterKey) data() map[string][]byte {
	return map[string][]byte{KeyPrivate: k.Private.Bytes(), KeyPublic: []byte(k.Private.Public().String()), KeySeed: k.Seed}
}

// Secrets returns the Secrets of a member, which only its gateways mount: the
// credentials for the broker, the key that all clusters share, and the cluster's
// own keys.
func Secrets(creds *broker.Credentials, psk broker.Secret, key ClusterKey) []client.Object {
	return []client.Object{
		secret(BrokerSecret, map[string][]byte{
			corev1.ServiceAccountTokenKey: creds.Token, corev1.ServiceAccountRootCAKey: creds.CA,
		}),
		secret(PSKSecret, map[string][]byte{broker.PSKKey: psk}),
		secret(ClusterKeySecret, key.data()),
	}
}

func secret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: ours("")},
		Type:       corev1.SecretTypeOpaque, Data: data,
	}
}

// clusterKey returns the cluster's keys: those it has, or new ones. A key that is
// there but unreadable is an error, not replaced: the other clusters derived their
// secrets from its public half. A Secret of an older version lacks the seed, of which
// nobody else knows: it gets one.
func clusterKey(ctx context.Context, c client.Reader) (ClusterKey, error) {
	stored, err := optional(ctx, c, &corev1.Secret{}, client.ObjectKey{Namespace: Namespace, Name: ClusterKeySecret})
	if err != nil {
		return ClusterKey{}, err
	}
	if stored == nil {
		return newClusterKey()
	}
	const remedy = "repair Secret " + Namespace + "/" + ClusterKeySecret + ", or delete it to make a new key"
	key := ClusterKey{Seed: stored.Data[KeySeed]}
	if key.Private, err = keys.ParsePrivate(stored.Data[KeyPrivate]); err != nil {
		return ClusterKey{}, fmt.Errorf("%w: %s", err, remedy)
	}
	switch len(key.Seed) {
	case keys.Size:
	case 0:
		key.Seed = newSeed()
	default:
		return ClusterKey{}, fmt.Errorf("reading the seed of gateways' keys: %d bytes, not %d: %s", len(key.Seed), keys.Size, remedy)
	}
	return key, nil
}
