package cluster

import (
	"fmt"
	"strings"

	"subctl/broker/trust"
)

// Trust holds the keys and the grant with which a cluster signs and verifies.
type Trust struct {
	Key           trust.Key
	Administrator trust.PublicKey
	Grant         string // signed
}

// data returns the data of TrustSecret.
func (t Trust) data() map[string][]byte {
	return map[string][]byte{
		KeySigning:       t.Key.Seed(),
		KeyAdministrator: []byte(t.Administrator.String()),
		KeyGrant:         []byte(t.Grant),
	}
}

// ReadTrust is the inverse of the data of TrustSecret. The result is complete, or err says
// what is wrong with it. The grant is not verified.
func ReadTrust(data map[string][]byte) (t Trust, err error) {
	var flaws []string
	add := func(key string, err error) {
		if len(data[key]) == 0 {
			flaws = append(flaws, key+" is missing")
		} else if err != nil {
			flaws = append(flaws, fmt.Sprintf("%s: %v", key, err))
		}
	}
	t.Key, err = trust.ParseKey(data[KeySigning])
	add(KeySigning, err)
	t.Administrator, err = trust.ParsePublic(string(data[KeyAdministrator]))
	add(KeyAdministrator, err)
	t.Grant = string(data[KeyGrant])
	add(KeyGrant, nil)
	if len(flaws) > 0 {
		return Trust{}, fmt.Errorf("Secret %s/%s: %s", Namespace, TrustSecret, strings.Join(flaws, "; "))
	}
	return t, nil
}
