package join

import (
	"regexp"
	"strings"
)

// SuggestID returns a cluster ID for a cluster's name in a kubeconfig, as upstream does: in
// lower case, with '-' for anything except letters, digits and '-', and with '0' for a '-'
// at either end. The result may be too long: see submarinerv1.CheckClusterID.
func SuggestID(name string) string {
	id := notInID.ReplaceAllString(strings.ToLower(name), "-")
	if strings.HasPrefix(id, "-") {
		id = "0" + id[1:]
	}
	if strings.HasSuffix(id, "-") {
		id = id[:len(id)-1] + "0"
	}
	return id
}

var notInID = regexp.MustCompile(`[^a-z0-9-]+`)
