// Package version holds the version of this build.
package version

// Version is set by the linker (see the Makefile's LDFLAGS).
var Version = "devel"

// Image is the image agents run unless told otherwise: quay.io/submariner-style
// repository and name are given by join --image.
const Image = "localhost/subctl"
