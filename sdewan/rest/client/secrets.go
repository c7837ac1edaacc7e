package client

import (
	"encoding/json"
	"strings"

	"subctl/sdewan/rest"
)

// maxSecrets is the maximum size of the secrets for which an answer is searched, in bytes: at most
// the keys of about 100 tunnels. Searching for more takes too long.
const maxSecrets = 512 << 10

// secretsOf returns the secrets of objects, as they are and as they are in JSON, and whether these
// are all: there may be too many.
func secretsOf(objects []rest.Object) (out []string, all bool) {
	size := 0
	for _, o := range objects {
		r, ok := o.(*rest.Remote)
		if !ok {
			continue
		}
		for _, s := range []string{r.PreSharedKey, r.LocalKey} {
			if s = strings.TrimSpace(s); s == "" {
				continue
			}
			if size += len(s); size > maxSecrets {
				return nil, false
			}
			quoted, _ := json.Marshal(s) // a string can be encoded
			out = append(out, s, strings.Trim(string(quoted), `"`))
		}
	}
	return out, true
}
