package join

import (
	"cmp"
	"fmt"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable/drivers"
)

// The values of Options.Encryption.
const (
	EncryptionRequired = string(submarinerv1.EncryptionRequired)
	EncryptionOptional = "optional"
)

// checkEncryption returns an error if the flag --encryption has an unknown value.
func (o Options) checkEncryption() error {
	switch o.Encryption {
	case "":
		if !o.specifies("encryption") {
			return nil
		}
	case EncryptionRequired, EncryptionOptional:
		return nil
	}
	return fmt.Errorf("--encryption %q is not a value: use %s or %s", o.Encryption, EncryptionRequired, EncryptionOptional)
}

// encryption returns whether the cluster requires encryption.
func (r request) encryption() submarinerv1.Encryption {
	switch {
	case r.Encryption == EncryptionRequired:
		return submarinerv1.EncryptionRequired
	case r.Encryption == "" && r.member.Submariner != nil:
		return r.member.Submariner.Spec.Encryption
	}
	return ""
}

// checkEncryption warns if encryption is required, but the broker's default driver does not
// encrypt.
func checkEncryption(r request) ([]string, error) {
	d := drivers.Find(cmp.Or(r.broker.Broker.Spec.CableDriver, drivers.Default))
	if !r.encryption().Required() || d == nil || d.Properties().Encrypts {
		return nil, nil
	}
	return []string{fmt.Sprintf("this cluster requires encryption, but the broker's default driver, %s, does not encrypt: "+
		"the cluster is connected only to clusters for which a cable policy specifies a driver that encrypts (subctl cable-policy add)", d.Name())}, nil
}
