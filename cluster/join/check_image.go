package join

import (
	"fmt"
	"strings"

	"subctl/internal/version"
)

// checkImage warns if the default image is in no registry.
func checkImage(r request) ([]string, error) {
	registry, _, _ := strings.Cut(version.Image, "/")
	if r.Image != "" || registry != "localhost" {
		return nil, nil
	}
	return []string{fmt.Sprintf("the image of the agents, %s:%s, is in no registry: nodes that do not have it cannot pull it; "+
		"push it to a registry and specify it with --image", version.Image, version.Version)}, nil
}
