// Package version holds the version and the default image of this build.
package version

// Version is set by the linker (see the Makefile's LDFLAGS).
var Version = "devel"

// Image is the default image of the agents, without a tag. join --image overrides it.
const Image = "localhost/subctl"
