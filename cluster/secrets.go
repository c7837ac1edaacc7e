package cluster

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cable/keys"
)

// Keys of the data of ClusterKeySecret. In gateway pods they are file names.
const (
	// KeyPrivate is the X25519 private key, 32 raw bytes.
	KeyPrivate = "private"
	// KeyPublic is the public key in base64, as in Cluster.spec.public_key.
	KeyPublic = "public"
	// KeySeed is the seed from which the WireGuard keys of the gateways are derived: 32
	// random bytes.
	KeySeed = "seed"
)

// Keys of the data of TrustSecret. In gateway pods they are file names. A change is followed
// without a restart of the pods.
const (
	// KeySigning is the seed of the cluster's Ed25519 signing key: 32 raw bytes.
	KeySigning = "signing-key"
	// KeyAdministrator is the public key of the administrator, in base64. It is pinned: join
	// never replaces it by another.
	KeyAdministrator = "administrator"
	// KeyGrant is the cluster's grant, a JSON Web Signature.
	KeyGrant = "grant"
)

// ClusterKey is the secret of one cluster from which the keys of its cables are derived:
// see package keys.
type ClusterKey struct {
	Private keys.PrivateKey
	Seed    broker.Secret // keys.Size bytes
}

// data returns the data of ClusterKeySecret.
func (k ClusterKey) data() map[string][]byte {
	return map[string][]byte{
		KeyPrivate: k.Private.Bytes(),
		KeyPublic:  []byte(k.Private.Public().String()),
		KeySeed:    k.Seed,
	}
}

// Secrets returns the Secrets of a joined cluster, which only gateway pods mount: the
// credentials for the broker, the pre-shared key, the keys of the cluster, and its grant.
func Secrets(creds *broker.Credentials, psk broker.Secret, key ClusterKey, t Trust) []client.Object {
	data := map[string][]byte{corev1.ServiceAccountTokenKey: creds.Token, corev1.ServiceAccountRootCAKey: creds.CA}
	if len(creds.ProxyUser) > 0 {
		data[broker.ProxyUserKey] = creds.ProxyUser
	}
	return []client.Object{
		secret(BrokerSecret, data),
		secret(PSKSecret, map[string][]byte{broker.PSKKey: psk}),
		secret(ClusterKeySecret, key.data()),
		secret(TrustSecret, t.data()),
	}
}

func secret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: ours("")},
		Type:       corev1.SecretTypeOpaque, Data: data,
	}
}

// Redacted replaces secrets, and values that join creates, in the output of a dry run.
const Redacted = "redacted"

// RedactedSecrets returns the Secrets of a joined cluster without their values.
func RedactedSecrets() []client.Object {
	var out []client.Object
	for name, keys := range map[string][]string{
		BrokerSecret:     {corev1.ServiceAccountTokenKey, corev1.ServiceAccountRootCAKey},
		PSKSecret:        {broker.PSKKey},
		ClusterKeySecret: {KeyPrivate, KeyPublic, KeySeed},
		TrustSecret:      {KeySigning, KeyAdministrator, KeyGrant},
	} {
		s := secret(name, nil)
		s.StringData = map[string]string{}
		for _, key := range keys {
			s.StringData[key] = Redacted
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b client.Object) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}

// BrokerSecretName returns the name of the Secret with the credentials for the broker.
func BrokerSecretName(sub *v1alpha1.Submariner) string {
	return cmp.Or(sub.Spec.BrokerK8sSecret, BrokerSecret)
}

// PSKSecretName returns the name of the Secret with the pre-shared key.
func PSKSecretName(sub *v1alpha1.Submariner) string {
	return cmp.Or(sub.Spec.CeIPSecPSKSecret, PSKSecret)
}
