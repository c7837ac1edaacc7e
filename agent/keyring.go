package agent

import (
	"cmp"
	"os"
	"path/filepath"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cable/keys"
	"subctl/cluster"
)

// readRing reads what cables are encrypted with from mounted Secrets, below dir and
// under their names. What is missing is missing in the Ring too: the drivers that
// need it say so, and the others go on.
func readRing(dir string, sub *v1alpha1.Submariner) *keys.Ring {
	read := func(secret, key string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, secret, key))
		if err != nil {
			return nil
		}
		return b
	}
	r := &keys.Ring{
		Cluster: sub.Spec.ClusterID,
		Seed:    read(cluster.ClusterKeySecret, cluster.KeySeed),
		PSK:     read(cmp.Or(sub.Spec.CeIPSecPSKSecret, cluster.PSKSecret), broker.PSKKey),
	}
	r.Private, _ = keys.ParsePrivate(read(cluster.ClusterKeySecret, cluster.KeyPrivate)) // the zero key: none
	return r
}
