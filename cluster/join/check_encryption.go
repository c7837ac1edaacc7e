package join

import (
	"fmt"

	submarinerv1 "subctl/api/submariner/v1"
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
	return fmt.Errorf("--encryption %q is not a value: use %s or %s", o.Encryption, EncryptionRequired,
		EncryptionOptional)
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
