package exchange

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
)

// nameFlaw returns the reason why an object cannot be shared under its name, or "".
func (k *Kind) nameFlaw(name string) string {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Sprintf(
			"%.70q cannot name a %s: use at most 63 lower case letters, digits and '-', with a letter or digit at both ends",
			name, k.Noun)
	}
	return ""
}

// contentFlaw returns the reason why an object must not be copied, as a reason of the
// condition Shared and as a text, or "".
func (k *Kind) contentFlaw(o client.Object) (reason, text string) {
	if n := k.boundedSize(o); n > k.MaxSize {
		return reasonTooLarge, k.tooLarge(n)
	}
	if k.Free.Check == nil {
		return "", ""
	}
	if err := k.Free.Check(o); err != nil {
		const most = 1000 // bytes: the first mistakes will do
		text := strings.ReplaceAll(err.Error(), "\n", "; ")
		if len(text) > most {
			text = strings.ToValidUTF8(text[:most], "") + " …"
		}
		return reasonMistake, text
	}
	return "", ""
}

// instead returns what is in force instead of an object with a flaw.
func instead(before bool) string {
	if before {
		return "its last valid version stays in force"
	}
	return "it is not in force anywhere"
}

// makerOf returns the ID of the cluster that made an object on the broker, or BrokerID.
func makerOf(o client.Object) string {
	if id, ok := slotOwner(o); ok {
		return id
	}
	if id, ok := submarinerv1.OwnerID(o); ok {
		return id
	}
	return submarinerv1.BrokerID
}
