package join

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/broker"
	"subctl/cable/keys"
	"subctl/cluster"
	"subctl/internal/kube"
)

// newClusterKey returns a new key pair and a new seed.
func newClusterKey() (cluster.ClusterKey, error) {
	private, err := keys.Generate()
	return cluster.ClusterKey{Private: private, Seed: newSeed()}, err
}

func newSeed() broker.Secret {
	seed := make(broker.Secret, keys.Size)
	rand.Read(seed) // never fails
	return seed
}

// clusterKey returns the keys of the cluster, or new keys if it has none or renew is true. It does
// not replace an unreadable key but returns an error, because the other clusters have derived their
// secrets from its public key. If the Secret was created by a version without the seed, clusterKey
// adds a seed, which no other cluster depends on.
func clusterKey(ctx context.Context, c client.Reader, renew bool) (cluster.ClusterKey, error) {
	if renew {
		return newClusterKey()
	}
	stored, err := kube.Optional(ctx, c, &corev1.Secret{},
		client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.ClusterKeySecret})
	if err != nil {
		return cluster.ClusterKey{}, err
	}
	if stored == nil {
		return newClusterKey()
	}
	const remedy = "repair Secret " + cluster.Namespace + "/" + cluster.ClusterKeySecret +
		", or delete it to get a new key"
	key := cluster.ClusterKey{Seed: stored.Data[cluster.KeySeed]}
	if key.Private, err = keys.ParsePrivate(stored.Data[cluster.KeyPrivate]); err != nil {
		return cluster.ClusterKey{}, fmt.Errorf("%w: %s", err, remedy)
	}
	switch len(key.Seed) {
	case keys.Size:
	case 0:
		key.Seed = newSeed()
	default:
		return cluster.ClusterKey{}, fmt.Errorf("reading the seed of the gateways' keys: it has %d bytes, not %d: %s",
			len(key.Seed), keys.Size, remedy)
	}
	return key, nil
}
