package cluster

import (
	"path"
	"strings"

	"subctl/api/submariner/v1alpha1"
	"subctl/internal/version"
)

// Image returns the image that a component of sub runs: its override; else
// <repository>/subctl:<version>, the repository being that of our own image and
// the version the one of this binary unless sub says otherwise.
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

// ImageOverrides returns the overrides by which every component runs image;
// none for the empty image.
func ImageOverrides(image string) map[string]string {
	if image == "" {
		return nil
	}
	return map[string]string{gatewayComponent: image, routeAgentComponent: image}
}
