package agent

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cable/keys"
	"subctl/cluster"
)

// ConditionPreSharedKey of a Gateway is false if its pod has no pre-shared key.
const ConditionPreSharedKey = "PreSharedKey"

const reasonMissing = "Missing"

// noPSK says what to do where there is no pre-shared key.
func noPSK(sub *v1alpha1.Submariner) string {
	return fmt.Sprintf("the gateway's pod has no pre-shared key, without which there are no encrypted cables: see that Secret %s in namespace %s has the key %s; if Submariner.spec.ceIPSecPSKSecret was changed, run subctl join again, which mounts it",
		pskSecret(sub), submarinerv1.OperatorNamespace, broker.PSKKey)
}

func pskSecret(sub *v1alpha1.Submariner) string {
	return cmp.Or(sub.Spec.CeIPSecPSKSecret, cluster.PSKSecret)
}

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
		PSK:     read(pskSecret(sub), broker.PSKKey),
	}
	r.Private, _ = keys.ParsePrivate(read(cluster.ClusterKeySecret, cluster.KeyPrivate)) // the zero key: none
	return r
}
