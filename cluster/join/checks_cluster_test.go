package join

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestImageName(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for _, image := range []string{
		"",
		"subctl",
		"subctl:v1",
		"localhost/subctl:devel",
		"localhost:5000/subctl",
		"registry.example/a/b_c/subctl:v1",
		"registry.example/subctl" + digest,
		"registry.example/subctl:v1" + digest,
		"10.0.0.1:5000/subctl:v1",
		"[fd00::1]:5000/subctl:v1",
	} {
		require.NoError(t, Options{Image: image}.checkImageName(), image)
	}
	for image, want := range map[string]string{
		"no image":                        "invalid reference format",
		" subctl:v1":                      "invalid reference format",
		"subctl:v1\n":                     "invalid reference format",
		"subctl:":                         "invalid reference format",
		":v1":                             "invalid reference format",
		"https://registry.example/subctl": "invalid reference format",
		"subctl@sha256:0":                 "invalid reference format",
		"registry.example/Subctl:v1":      "must be lowercase",
		strings.Repeat("a/", 200) + "b":   "must not be more than",
	} {
		err := Options{Image: image}.checkImageName()
		require.ErrorContains(t, err, want, image)
		require.ErrorContains(t, err, "such as registry.example/subctl:v1", image)
	}
}
