package trust

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// maxToken bounds what is parsed of others, in bytes: an object of 16 KiB, in base64.
const maxToken = 32 << 10

// algorithms are all that are accepted.
var algorithms = []jose.SignatureAlgorithm{jose.EdDSA}

// sign returns the signature of a value, which it contains.
func (k Key) sign(typ string, value any) (string, error) {
	if k.private == nil {
		return "", errors.New("signing: there is no key")
	}
	payload, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("signing: %w", err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: k.private},
		(&jose.SignerOptions{}).WithType(jose.ContentType(typ)))
	if err != nil {
		return "", fmt.Errorf("signing: %w", err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("signing: %w", err)
	}
	return signed.CompactSerialize()
}

// verify decodes the value that a token contains if p signed it as a value of the type.
func (p PublicKey) verify(typ, token string, value any) error {
	if p.IsZero() {
		return errors.New("there is no key to verify it with")
	}
	signed, err := parse(token)
	if err != nil {
		return err
	}
	if is := typeOf(signed); is != typ {
		return fmt.Errorf("it is signed as %.40q, not as %q", is, typ)
	}
	payload, err := signed.Verify(ed25519.PublicKey(p.key[:]))
	if err != nil {
		return errors.New("it was altered, or signed with another key than " + p.String())
	}
	return decode(payload, value)
}

// peek decodes the value that a token contains, whoever signed it.
func peek(token string, value any) error {
	signed, err := parse(token)
	if err != nil {
		return err
	}
	return decode(signed.UnsafePayloadWithoutVerification(), value)
}

func headerType(token string) (string, error) {
	signed, err := parse(token)
	if err != nil {
		return "", err
	}
	return typeOf(signed), nil
}

func parse(token string) (*jose.JSONWebSignature, error) {
	if token == "" {
		return nil, errors.New("it is not signed")
	}
	if len(token) > maxToken {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(token), maxToken)
	}
	signed, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil || slices.ContainsFunc(strings.Split(token, "."), isMalleable) {
		return nil, errors.New("it is not a JSON Web Signature with Ed25519")
	}
	return signed, nil
}

// isMalleable reports whether a text is not exactly the base64 of what it decodes to. The decoder
// ignores line breaks and the last bits: so everybody could write the same signature in many ways,
// each of which would be copied as a change.
func isMalleable(text string) bool {
	b, err := base64.RawURLEncoding.DecodeString(text)
	return err != nil || base64.RawURLEncoding.EncodeToString(b) != text
}

func typeOf(signed *jose.JSONWebSignature) string {
	typ, _ := signed.Signatures[0].Protected.ExtraHeaders[jose.HeaderType].(string)
	return typ
}

func decode(payload []byte, value any) error {
	if err := json.Unmarshal(payload, value); err != nil {
		return errors.New("what it signs cannot be read")
	}
	return nil
}
