package join

import (
	"regexp"
	"strings"
)

// SuggestID makes a cluster ID of the name a kubeconfig gives a cluster, the way
// upstream does: lower case, anything but letters, digits and '-' becomes '-', a
// '-' at either end becomes '0'. What comes out may still be too long; check it
// with submarinerv1.CheckClusterID.
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
