package cluster

import (
	"path"
	"strings"

	"subctl/api/submariner/v1alpha1"
	"subctl/internal/version"
)

// Image returns the image of a component of sub: its override if there is one, or else
// <repository>/subctl:<version>. Repository and version default to the repository of the
// official image and the version of this binary.
func Image(sub *v1alpha1.Submariner, component string) string {
	if image := sub.Spec.ImageOverrides[component]; image != "" {
		return image
	}
	image := version.Image
	if repo := sub.Spec.Repository; repo != "" {
		image = strings.TrimRight(repo, "/") + "/" + path.Base(version.Image)
	}
	tag := sub.Spec.Version
	if tag == "" {
		tag = version.Version
	}
	return image + ":" + tag
}

// ImageOverrides returns overrides that make every component run image. It returns nil if
// image is empty.
func ImageOverrides(image string) map[string]string {
	if image == "" {
		return nil
	}
	return map[string]string{gatewayComponent: image, routeAgentComponent: image}
}
