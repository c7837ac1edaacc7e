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
)

// JoinFileName is the file deploy-broker writes.
const JoinFileName = "broker-info.subm"

// PSKSecretName is the Secret with the pre-shared key, in the join file and in
// every joined cluster; its key is PSKKey.
const (
	PSKSecretName = "submariner-ipsec-psk"
	PSKKey        = "psk"
)

// pskSize is upstream's: 48 random bytes.
const pskSize = 48

// JoinFile is an invitation: where the broker is, the right to become a member
// for as long as the token lives, and the pre-shared key. Whoever holds the file
// can join.
type JoinFile struct {
	BrokerURL string // with scheme
	CA        []byte // PEM
	Namespace string // of the clusterset "default"
	Token     Secret // of the service account JoinerName
	PSK       Secret

	ServiceDiscovery bool
	Components       []string // sorted
	CustomDomains    []string
}

// wireFile has upstream's keys as its encoder really writes them (upstream
// 0.18: most of its struct tags are malformed, so field names go out).
// encoding/json matches keys of any case when it reads.
type wireFile struct {
	BrokerURL        string         `json:"brokerURL"`
	ClientToken      *corev1.Secret `json:"ClientToken"`
	IPSecPSK         *corev1.Secret `json:"IPSecPSK"`
	ServiceDiscovery bool           `json:"ServiceDiscovery"`
	Components       []string       `json:"Components,omitempty"`
	CustomDomains    []string       `json:"CustomDomains"`
}

// Encode returns the file's content: the URL-safe base64 of one JSON object.
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
	})
	if err != nil {
		return nil, err
	}
	return []byte(base64.URLEncoding.EncodeToString(b)), nil
}

// DecodeJoinFile is the inverse of Encode. It also takes files of upstream's
// subctl. It does not look at the clock: see Expired.
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
		Components: w.Components, CustomDomains: w.CustomDomains,
	}
	if w.ClientToken != nil {
		f.CA = w.ClientToken.Data[corev1.ServiceAccountRootCAKey]
		f.Namespace = string(w.ClientToken.Data[corev1.ServiceAccountNamespaceKey])
		f.Token = w.ClientToken.Data[corev1.ServiceAccountTokenKey]
	}
	if w.IPSecPSK != nil {
		f.PSK = w.IPSecPSK.Data[PSKKey]
	}
	return f, f.check()
}

// What may be wrong with a join file. Each continues "join file <name> …".
var (
	errTruncated = errors.New("is cut off or damaged: copy it again, whole")
	errForeign   = errors.New("is not a join file: subctl deploy-broker writes those")
)

func decodeBase64(content []byte) ([]byte, error) {
	content = bytes.TrimSpace(content)
	if len(content) == 0 {
		return nil, errors.New("is empty: copy it again")
	}
	b, err := base64.URLEncoding.DecodeString(string(content))
	if err != nil {
		// What starts like base64 of a JSON object was one once.
		if bytes.HasPrefix(content, []byte("ey")) {
			return nil, errTruncated
		}
		return nil, errForeign
	}
	return b, nil
}

// check says what a decoded file lacks.
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
		return fmt.Errorf("lacks %s: make a new one with subctl deploy-broker or recover-broker-info", strings.Join(lacks, ", "))
	}
	if !isURL(f.BrokerURL) {
		return fmt.Errorf("has the broker URL %q, which is not https://host:port: "+
			"make a new one with subctl deploy-broker --broker-url", f.BrokerURL)
	}
	return nil
}

// ParseURL returns the address of a broker's API server as a URL; https:// may be left
// out.
func ParseURL(address string) (string, error) {
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	if !isURL(address) {
		return "", fmt.Errorf("%q is not https://host:port", address)
	}
	return address, nil
}

func isURL(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil && u.RawQuery == ""
}

// Expires returns when the file's token expires, and false if it never does or
// does not say.
func (f *JoinFile) Expires() (time.Time, bool) {
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

// Expired says that the file's token has expired at now.
func (f *JoinFile) Expired(now time.Time) error {
	at, ok := f.Expires()
	if !ok || now.Before(at) {
		return nil
	}
	return fmt.Errorf("expired at %s: run subctl deploy-broker again where it was made, "+
		"or subctl recover-broker-info", at.Format(time.RFC3339))
}

// RESTConfig returns how to talk to the broker as the joiner. insecure turns off
// the check of the broker's certificate.
func (f *JoinFile) RESTConfig(insecure bool) *rest.Config {
	return restConfig(f.BrokerURL, insecure, func() ([]byte, error) { return f.CA, nil },
		func(c *rest.Config) { c.BearerToken = string(f.Token) })
}

// BaseNamespace returns the broker's namespace of the clusterset "default".
func (f *JoinFile) BaseNamespace() string {
	if f.Namespace == "" {
		return submarinerv1.BrokerNamespace
	}
	return f.Namespace
}
