package parts

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cable/keys"
	"subctl/cluster"
	"subctl/internal/wake"
)

// rereadKeys is the time between looks at the mounted Secrets, which the kubelet updates
// within a minute or so.
const rereadKeys = 5 * time.Second

// keyRing reads what cables are encrypted with from mounted Secrets. What is missing there
// is missing in the keys.Ring, too: the drivers that need it report so, and the others
// work.
type keyRing struct {
	dir     string // with a directory for each Secret, of its name
	trigger func()

	mu  sync.Mutex
	sub *v1alpha1.Submariner // names the Secrets; nil until the first snapshot
}

func newKeyRing(o Options) *keyRing { return &keyRing{dir: o.Secrets, trigger: o.Trigger} }

// Observe implements Observer.
func (k *keyRing) Observe(s *role.Snapshot) error {
	subs := role.List[*v1alpha1.Submariner](*s)
	if len(subs) == 0 {
		return nil
	}
	k.mu.Lock()
	k.sub = subs[0]
	k.mu.Unlock()
	if s.Keys = k.read(subs[0]); len(s.Keys.PSK) == 0 {
		s.KeysErr = fmt.Errorf(
			"the gateway's pod has no pre-shared key, without which there are no encrypted cables: see that Secret %s in namespace %s has the key %s; if Submariner.spec.ceIPSecPSKSecret was changed, run subctl join again, which mounts it",
			pskSecret(subs[0]), submarinerv1.OperatorNamespace, broker.PSKKey)
	}
	return nil
}

// Start triggers the loop when a mounted Secret has changed, until ctx is done.
func (k *keyRing) Start(ctx context.Context) error {
	var before *keys.Ring
	for wake.After(ctx, rereadKeys) == nil {
		k.mu.Lock()
		sub := k.sub
		k.mu.Unlock()
		if sub == nil {
			continue
		}
		now := k.read(sub)
		if before != nil &&
			!(bytes.Equal(before.Seed, now.Seed) && bytes.Equal(before.PSK, now.PSK) &&
				bytes.Equal(before.Private.Bytes(), now.Private.Bytes())) {
			k.trigger()
		}
		before = now
	}
	return nil
}

// read reads the mounted Secrets.
func (k *keyRing) read(sub *v1alpha1.Submariner) *keys.Ring {
	file := func(secret, key string) []byte {
		b, err := os.ReadFile(filepath.Join(k.dir, secret, key))
		if err != nil {
			return nil
		}
		return b
	}
	r := &keys.Ring{
		Cluster: sub.Spec.ClusterID,
		Seed:    file(cluster.ClusterKeySecret, cluster.KeySeed),
		PSK:     file(pskSecret(sub), broker.PSKKey),
	}
	r.Private, _ = keys.ParsePrivate(file(cluster.ClusterKeySecret, cluster.KeyPrivate)) // the zero key: none
	return r
}

// pskSecret returns the name of the Secret with the pre-shared key.
func pskSecret(sub *v1alpha1.Submariner) string {
	return cmp.Or(sub.Spec.CeIPSecPSKSecret, cluster.PSKSecret)
}
