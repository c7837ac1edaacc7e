package broker

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/trust"
	"subctl/internal/proxy"
)

// JoinFileName is the name of the file that deploy-broker writes.
const JoinFileName = "broker-info.subm"

// PSKSecretName is the name of the Secret with the pre-shared key, in the join file and in
// every joined cluster. PSKKey is the key in that Secret.
const (
	PSKSecretName = "submariner-ipsec-psk"
	PSKKey        = "psk"
)

// pskSize is the number of random bytes of a new pre-shared key, the same as upstream.
const pskSize = 48

// JoinFile contains what joining takes: the address of the broker, a token with the right to
// become a member, the pre-shared key, and the key that signs the grants of members. Until
// the token expires, every holder of a general file can join a cluster. A file that "subctl
// invite" has written is for one cluster.
type JoinFile struct {
	BrokerURL string // with scheme
	// TLSServerName is the name in the certificate of the broker's API server; empty: the host in
	// BrokerURL.
	TLSServerName string
	CA            []byte // PEM
	Namespace     string // of the clusterset "default"
	Token         Secret // of the service account JoinerName, or of InviteeName for one cluster
	PSK           Secret

	// SigningKey signs grants: the administrator's key or, in the file for one cluster, the key
	// of the invitation. Administrator is the administrator's public key.
	SigningKey    trust.Key
	Administrator trust.PublicKey
	// Invitation bounds the grants that SigningKey may sign; it is signed by the administrator.
	// In a general file it is empty.
	Invitation string

	ServiceDiscovery bool
	Components       []string // sorted
	CustomDomains    []string

	// Proxy is how this machine reaches the broker. It is not in the file: it depends on where the
	// reader of the file is.
	Proxy proxy.Settings
}

// wireFile has the keys that upstream's encoder writes. Most struct tags of upstream 0.18
// are malformed, so the keys are field names. When it decodes, encoding/json ignores the
// case of keys.
type wireFile struct {
	BrokerURL        string         `json:"brokerURL"`
	ClientToken      *corev1.Secret `json:"ClientToken"`
	IPSecPSK         *corev1.Secret `json:"IPSecPSK"`
	ServiceDiscovery bool           `json:"ServiceDiscovery"`
	Components       []string       `json:"Components,omitempty"`
	CustomDomains    []string       `json:"CustomDomains"`
	// Of subctl alone. A version that does not know TLSServerName refuses the certificate, whose
	// name is not the name in BrokerURL.
	Trust         *wireTrust `json:"Trust,omitempty"`
	TLSServerName string     `json:"TLSServerName,omitempty"`
}

// Encode returns the content of the file: the URL-safe base64 of a JSON object.
func (f *JoinFile) Encode() ([]byte, error) {
	b, err := json.Marshal(wireFile{
		BrokerURL: f.BrokerURL,
		ClientToken: &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: JoinerName + "-token", Namespace: f.Namespace},
			Type:       corev1.SecretTypeServiceAccountToken,
			Data: map[string][]byte{
				corev1.ServiceAccountRootCAKey:    f.CA,
				corev1.ServiceAccountNamespaceKey: []byte(f.Namespace),
				corev1.ServiceAccountTokenKey:     f.Token,
			},
		},
		IPSecPSK: &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: PSKSecretName},
			Data:       map[string][]byte{PSKKey: f.PSK},
		},
		ServiceDiscovery: f.ServiceDiscovery,
		Components:       slices.Sorted(slices.Values(f.Components)),
		CustomDomains:    f.CustomDomains,
		Trust:            f.encodeTrust(),
		TLSServerName:    f.TLSServerName,
	})
	if err != nil {
		return nil, err
	}
	return []byte(base64.URLEncoding.EncodeToString(b)), nil
}

// DecodeJoinFile is the inverse of Encode. It also decodes the files of upstream's subctl.
// The token may have expired: see JoinFile.Expired.
func DecodeJoinFile(content []byte) (*JoinFile, error) {
	b, err := decodeBase64(content)
	if err != nil {
		return nil, err
	}
	var w wireFile
	if err := json.Unmarshal(b, &w); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) && bytes.HasPrefix(b, []byte("{")) {
			return nil, errTruncated
		}
		return nil, errForeign
	}
	if w.BrokerURL == "" && w.ClientToken == nil && w.IPSecPSK == nil {
		return nil, errForeign
	}
	f := &JoinFile{
		BrokerURL: w.BrokerURL, ServiceDiscovery: w.ServiceDiscovery,
		Components: w.Components, CustomDomains: w.CustomDomains, TLSServerName: w.TLSServerName,
	}
	if w.ClientToken != nil {
		f.CA = w.ClientToken.Data[corev1.ServiceAccountRootCAKey]
		f.Namespace = string(w.ClientToken.Data[corev1.ServiceAccountNamespaceKey])
		f.Token = w.ClientToken.Data[corev1.ServiceAccountTokenKey]
	}
	if w.IPSecPSK != nil {
		f.PSK = w.IPSecPSK.Data[PSKKey]
	}
	if err := f.decodeTrust(w.Trust); err != nil {
		return nil, err
	}
	return f, f.check()
}

// Errors of DecodeJoinFile. Each continues "join file <name> …".
var (
	errTruncated = errors.New("is truncated or damaged: copy the whole file again")
	errForeign   = errors.New("is not a join file: subctl deploy-broker writes join files")
)

func decodeBase64(content []byte) ([]byte, error) {
	content = bytes.TrimSpace(content)
	if len(content) == 0 {
		return nil, errors.New("is empty: copy it again")
	}
	b, err := base64.URLEncoding.DecodeString(string(content))
	if err != nil {
		// The content starts like the base64 of a JSON object.
		if bytes.HasPrefix(content, []byte("ey")) {
			return nil, errTruncated
		}
		return nil, errForeign
	}
	return b, nil
}

// check returns an error if fields of a decoded file are missing or invalid.
func (f *JoinFile) check() error {
	var lacks []string
	for name, missing := range map[string]bool{
		"brokerURL": f.BrokerURL == "", "token": len(f.Token) == 0, "ca.crt": len(f.CA) == 0,
		"namespace": f.Namespace == "", "psk": len(f.PSK) == 0,
	} {
		if missing {
			lacks = append(lacks, name)
		}
	}
	if len(lacks) > 0 {
		slices.Sort(lacks)
		return fmt.Errorf("lacks %s: make a new one with subctl deploy-broker or recover-broker-info",
			strings.Join(lacks, ", "))
	}
	if !isURL(f.BrokerURL) {
		return fmt.Errorf("has the broker URL %.100q, which is not https://host:port: "+
			"make a new one with subctl deploy-broker --broker-url", f.BrokerURL)
	}
	return nil
}

// ParseURL returns the address of a broker's API server as a URL. The address may lack
// https://.
func ParseURL(address string) (string, error) {
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	if !isURL(address) {
		return "", fmt.Errorf("%.100q is not https://host:port", address)
	}
	return address, nil
}

func isURL(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil && u.RawQuery == ""
}

// RESTConfig returns the configuration of a client of the broker with the rights of the joiner,
// through the proxy of the file. insecure turns off the verification of the broker's certificate.
func (f *JoinFile) RESTConfig(insecure bool) *rest.Config {
	access := Access{Server: f.BrokerURL, ServerName: f.TLSServerName, Insecure: insecure, Proxy: f.Proxy}
	return access.restConfig(func() ([]byte, error) { return f.CA, nil },
		func(c *rest.Config) { c.BearerToken = string(f.Token) })
}

// BaseNamespace returns the broker's namespace of the clusterset "default".
func (f *JoinFile) BaseNamespace() string {
	if f.Namespace == "" {
		return submarinerv1.BrokerNamespace
	}
	return f.Namespace
}

// wireTrust is the part of a join file about signatures, which upstream's files lack.
type wireTrust struct {
	SigningKey    []byte `json:"signingKey"` // see trust.Key.Seed
	Administrator string `json:"administrator"`
	Invitation    string `json:"invitation,omitempty"`
}

func (f *JoinFile) encodeTrust() *wireTrust {
	if f.SigningKey.IsZero() {
		return nil
	}
	return &wireTrust{
		SigningKey:    f.SigningKey.Seed(),
		Administrator: f.Administrator.String(),
		Invitation:    f.Invitation,
	}
}

// decodeTrust sets the part of the file about signatures, and verifies that it fits together.
func (f *JoinFile) decodeTrust(w *wireTrust) error {
	if w == nil {
		return nil
	}
	var err error
	if f.SigningKey, err = trust.ParseKey(w.SigningKey); err != nil {
		return errTruncated
	}
	if f.Administrator, err = trust.ParsePublic(w.Administrator); err != nil {
		return errTruncated
	}
	f.Invitation = w.Invitation
	if f.Invitation == "" && f.SigningKey.Public() != f.Administrator {
		return errTruncated
	}
	_, err = f.Invited()
	return err
}

// AdministratorKey returns the administrator's key; the zero Key if the file does not contain
// it, as the file for one cluster or a file of upstream's subctl.
func (f *JoinFile) AdministratorKey() trust.Key {
	if f == nil || f.Invitation != "" {
		return trust.Key{}
	}
	return f.SigningKey
}

// Invited returns the invitation of the file for one cluster; nil if the file is a general one.
func (f *JoinFile) Invited() (*trust.Invitation, error) {
	if f.Invitation == "" {
		return nil, nil
	}
	i, err := f.Administrator.Invitation(f.Invitation)
	if err == nil && i.Key != f.SigningKey.Public() {
		err = errors.New("its key is not the key of its invitation")
	}
	if err != nil {
		return nil, fmt.Errorf("contains an invalid invitation: %w: ask for a new file, which subctl invite writes",
			err)
	}
	return &i, nil
}

// CheckBroker returns an error if the keys in the file are not the keys of a broker.
func (f *JoinFile) CheckBroker(b *v1alpha1.Broker) error {
	admin := b.Annotations[AdministratorAnnotation]
	if !MayHavePSK(b, f.PSK) || admin != "" && admin != f.Administrator.String() {
		return fmt.Errorf(
			"is of another broker than %s, or was written before the broker got new keys: specify the file that subctl deploy-broker wrote for it",
			b.Namespace)
	}
	return nil
}

// SignGrant signs a grant with the key of the file.
func (f *JoinFile) SignGrant(g trust.Grant) (string, error) {
	if f.Invitation != "" {
		return f.SigningKey.SignInvitedGrant(g, f.Invitation)
	}
	return f.SigningKey.SignGrant(g)
}

// checkTrust returns an error if the file cannot sign grants.
func (f *JoinFile) checkTrust() error {
	if f.SigningKey.IsZero() {
		return errors.New("has no signing key, without which no cluster trusts another: " +
			"make a new one with subctl deploy-broker; only its pre-shared key can be used, with --ipsec-psk-from")
	}
	return nil
}

// Expires returns the time at which the file expires: its token or, in the file for one
// cluster, its invitation, whichever is first. It returns false if it never expires or its
// expiry is unknown.
func (f *JoinFile) Expires() (time.Time, bool) {
	at, ok := f.tokenExpires()
	if i, err := f.Invited(); err == nil && i != nil {
		if until := time.UnixMilli(i.Expires).UTC(); !ok || until.Before(at) {
			return until, true
		}
	}
	return at, ok
}

// tokenExpires returns the time at which the token expires.
func (f *JoinFile) tokenExpires() (time.Time, bool) {
	parts := strings.Split(string(f.Token), ".")
	if len(parts) != 3 {
		return time.Time{}, false
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}, false
	}
	var claims struct {
		Exp int64 `json:"exp"`
	}
	if json.Unmarshal(b, &claims) != nil || claims.Exp == 0 {
		return time.Time{}, false
	}
	return time.Unix(claims.Exp, 0).UTC(), true
}

// Expired returns an error if the file has expired at now.
func (f *JoinFile) Expired(now time.Time) error {
	at, ok := f.Expires()
	if !ok || now.Before(at) {
		return nil
	}
	if f.Invitation != "" {
		return fmt.Errorf(
			"expired at %s: ask the administrator of the broker for a new one, which subctl invite writes",
			at.Format(time.RFC3339))
	}
	return fmt.Errorf("expired at %s: run subctl deploy-broker again where it was made, "+
		"or subctl recover-broker-info", at.Format(time.RFC3339))
}
