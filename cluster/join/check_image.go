package join

import (
	"fmt"
	"strings"

	"subctl/internal/version"
)

// checkImage warns of an image that nobody chose and that nodes cannot pull.
func checkImage(r request) ([]string, error) {
	registry, _, _ := strings.Cut(version.Image, "/")
	if r.Image != "" || registry != "localhost" {
		return nil, nil
	}
	return []string{fmt.Sprintf("the image of the agents, %s:%s, is in no registry: nodes that do not have it cannot pull it; "+
		"push it to one and say it with --image", version.Image, version.Version)}, nil
}
