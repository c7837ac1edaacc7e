package join

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"

	"subctl/cluster"
	"subctl/internal/version"
)

// checkImage warns if the default image is in no registry.
func checkImage(r request) ([]string, error) {
	if kept := r.images(r.before().Spec.ImageOverrides); r.Image == "" && len(kept) > 0 {
		if stored := r.before().Spec.Version; stored == version.Version {
			return nil, nil
		}
		return []string{
			fmt.Sprintf(
				"the agents keep their image, %s: specify another one with --image to replace them by this version, %s",
				kept[cluster.GatewayName], version.Version),
		}, nil
	}
	registry, _, _ := strings.Cut(version.Image, "/")
	if r.Image != "" || registry != "localhost" {
		return nil, nil
	}
	return []string{
		fmt.Sprintf("the image of the agents, %s:%s, is in no registry: nodes that do not have it cannot pull it; "+
			"push it to a registry and specify it with --image", version.Image, version.Version),
	}, nil
}

// checkImageName refuses an image that no kubelet can pull, because its name is malformed.
func (o Options) checkImageName() error {
	if o.Image == "" {
		return nil
	}
	if _, err := reference.ParseNormalizedNamed(o.Image); err != nil { // as the kubelet does
		return fmt.Errorf(
			"--image %q is not the name of an image: %w: specify REGISTRY/REPOSITORY:TAG, such as registry.example/subctl:v1",
			o.Image, err)
	}
	return nil
}
